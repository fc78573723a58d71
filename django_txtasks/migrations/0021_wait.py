"""What tasks wait for. A new table; workers of before do not need it."""

import django_txtasks.models
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('txtasks', '0020_ended_batch_index'),
    ]

    operations = [
        migrations.CreateModel(
            name='Wait',
            fields=[
                ('pk', models.CompositePrimaryKey('task_id', 'name', blank=True, editable=False, primary_key=True, serialize=False)),
                ('task_id', django_txtasks.models.TaskId()),
                ('name', django_txtasks.models.ExactText(max_length=100)),
                ('is_sleep', models.BooleanField(help_text='it is over at its time; else it needs a value')),
                ('until', models.DateTimeField(help_text='empty = for ever', null=True)),
                ('value', models.TextField(help_text='JSON text, given back as it is; empty = none has come', null=True)),
                ('ended_at', models.DateTimeField(help_text='when the value came, or when it was too late for it', null=True)),
            ],
            options={
                'default_permissions': (),
            },
        ),
    ]
