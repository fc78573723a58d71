"""Links from tasks to business objects."""

from django.db import migrations, models

import django_txtasks.models


class Migration(migrations.Migration):

    dependencies = [
        ('txtasks', '0004_beyond_one_machine'),
    ]

    operations = [
        migrations.CreateModel(
            name='Link',
            fields=[
                ('pk', models.CompositePrimaryKey('task_id', 'subject_type', 'subject_id', blank=True, editable=False, primary_key=True, serialize=False)),
                ('task_id', django_txtasks.models.TaskId()),
                ('subject_type', django_txtasks.models.ExactText(help_text="the object's model, such as shop.order", max_length=200)),
                ('subject_id', django_txtasks.models.ExactText(help_text="the object's primary key, as text", max_length=200)),
            ],
            options={
                'default_permissions': (),
                'indexes': [models.Index(fields=['subject_type', 'subject_id', 'task_id'], name='txtasks_subject')],
            },
        ),
    ]
