"""Define the view ``txtasks_load`` anew in a database whose tables are older than the view's present text."""

from __future__ import annotations

from importlib import import_module

from django.db import migrations

tables = import_module('django_txtasks.migrations.0001_tables')


class Migration(migrations.Migration):

    dependencies = [
        ('txtasks', '0001_tables'),
    ]

    operations = [
        tables.OnPostgreSQL(tables.LOAD, migrations.RunSQL.noop, hints={'model_name': 'task'}),
    ]
