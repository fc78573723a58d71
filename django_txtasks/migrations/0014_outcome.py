"""How far tasks have come, in the row of their worker; and where workers were that have ended."""

import django_txtasks.models
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('txtasks', '0013_once'),
    ]

    operations = [
        migrations.AddField(
            model_name='worker',
            name='progress',
            field=models.JSONField(db_default=models.Value({}, models.JSONField()), help_text='how far its tasks say that they have come, by their ids'),
        ),
        migrations.CreateModel(
            name='EndedWorker',
            fields=[
                ('id', django_txtasks.models.TaskId(editable=False, primary_key=True, serialize=False)),
                ('host', models.CharField(max_length=200)),
                ('pid', models.PositiveIntegerField()),
                ('started_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(db_default=django_txtasks.models.DatabaseNow())),
            ],
            options={
                'default_permissions': ('view',),
                'indexes': [models.Index(fields=['ended_at'], name='txtasks_worker_ended')],
            },
        ),
    ]
