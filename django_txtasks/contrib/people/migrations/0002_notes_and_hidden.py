"""The author of a note, the users who have hidden a question, and an index of a person's newest answers."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ('txtasks_people', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='question',
            name='hidden_for',
            field=models.JSONField(db_default=models.Value([], models.JSONField()), default=list, help_text='keys, as text, of the users who do not want it in their lists'),
        ),
        migrations.AddField(
            model_name='question',
            name='noted_as',
            field=models.CharField(blank=True, db_default='', help_text='the name of the person who wrote the note', max_length=200, verbose_name='noted as'),
        ),
        # MariaDB and MySQL need an index for the foreign key at each moment.
        migrations.AddIndex(
            model_name='question',
            index=models.Index(fields=['answered_by', 'closed_at'], name='txtasks_question_answers'),
        ),
        migrations.AlterField(
            model_name='question',
            name='answered_by',
            field=models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL, verbose_name='answered by'),
        ),
    ]
