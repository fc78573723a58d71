"""The table of questions."""

from importlib import import_module

import django.db.models.deletion
import django_txtasks.models
from django.conf import settings
from django.db import migrations, models

core = import_module('django_txtasks.migrations.0001_tables')


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('txtasks', '0001_tables'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    replaces = [
        ('txtasks_people', '0001_initial'),
        ('txtasks_people', '0002_notes_and_hidden'),
        ('txtasks_people', '0003_text_of_all_languages'),
    ]

    operations = [
        migrations.CreateModel(
            name='Question',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('task_id', django_txtasks.models.TaskId(editable=False)),
                ('name', django_txtasks.models.ExactText(help_text="the name of the task's wait", max_length=100, verbose_name='name')),
                ('kind', django_txtasks.models.ExactText(max_length=100, verbose_name='kind')),
                ('title', django_txtasks.models.ExactText(max_length=200, verbose_name='title')),
                ('asked_at', models.DateTimeField(db_default=django_txtasks.models.DatabaseNow(), verbose_name='asked')),
                ('due_at', models.DateTimeField(help_text='the year 9999: never overdue', verbose_name='due')),
                ('taken_at', models.DateTimeField(null=True, verbose_name='taken')),
                ('taken_until', models.DateTimeField(help_text='empty = until it is answered or given back', null=True, verbose_name='held until')),
                ('hidden_until', models.DateTimeField(null=True, verbose_name='hidden until')),
                ('suggested', models.JSONField(help_text='first values of the form', null=True)),
                ('not_by', models.JSONField(default=list, help_text='keys, as text, of the users who must not answer')),
                ('note', django_txtasks.models.ExactText(blank=True, db_default='', max_length=500, verbose_name='note')),
                ('by_machine', models.BooleanField(db_default=False, verbose_name='by a machine')),
                ('agreed', models.BooleanField(help_text='the answer was as suggested; empty = nothing was', null=True, verbose_name='agreed')),
                ('answered_as', django_txtasks.models.ExactText(db_default='', help_text='the name of the person, which stays when the user is deleted', max_length=200, verbose_name='answered as')),
                ('closed_at', models.DateTimeField(help_text='empty = the question is open', null=True, verbose_name='closed')),
                ('answered_by', models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL, verbose_name='answered by')),
                ('assignee', models.ForeignKey(blank=True, help_text='the person who has the question; empty = it is free', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL, verbose_name='person')),
                ('hidden_for', models.JSONField(db_default=models.Value([], models.JSONField()), default=list, help_text='keys, as text, of the users who do not want it in their lists')),
                ('noted_as', django_txtasks.models.ExactText(blank=True, db_default='', help_text='the name of the person who wrote the note', max_length=200, verbose_name='noted as')),
            ],
            options={
                'verbose_name': 'question',
                'verbose_name_plural': 'questions',
                'db_table': 'txtasks_question',
                'permissions': (('assign_question', 'Can give questions to other people'),),
                'default_permissions': ('view',),
                'indexes': [
                    models.Index(fields=['closed_at', 'kind', 'due_at', 'id'], name='txtasks_question_closed'),
                    # MariaDB and MySQL use it for the foreign key, too.
                    models.Index(fields=['answered_by', 'closed_at'], name='txtasks_question_answers'),
                ],
                'constraints': [models.UniqueConstraint(fields=('task_id', 'name'), name='txtasks_question_once')],
            },
        ),
        core.AddPartialIndex('question', models.Index(
            condition=models.Q(('closed_at__isnull', True)), fields=['kind', 'due_at', 'id'], name='txtasks_question_open',
        )),
    ]
