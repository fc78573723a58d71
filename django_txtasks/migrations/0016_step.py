"""Steps that tasks have done. A new table; workers of before do not need it."""

import django_txtasks.models
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('txtasks', '0015_schedule'),
    ]

    operations = [
        migrations.CreateModel(
            name='Step',
            fields=[
                ('pk', models.CompositePrimaryKey('task_id', 'name', blank=True, editable=False, primary_key=True, serialize=False)),
                ('task_id', django_txtasks.models.TaskId()),
                ('name', django_txtasks.models.ExactText(max_length=100)),
                ('value', models.TextField(help_text='JSON text, given back as it is')),
                ('attempt', models.PositiveIntegerField(help_text='the attempt that has done it')),
                ('done_at', models.DateTimeField()),
            ],
            options={
                'default_permissions': (),
            },
        ),
    ]
