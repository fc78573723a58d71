"""On MariaDB and MySQL, every text column takes every character, whatever the database's character set.

There, the tables are copied if their text has another character set. Meanwhile others can read them and wait to write.
"""

from django.db import migrations

from django_txtasks.database.text_columns import AlterTexts
from django_txtasks.models import ExactText


class Migration(migrations.Migration):

    dependencies = [
        ('txtasks_people', '0002_notes_and_hidden'),
    ]

    operations = [
        AlterTexts(state_operations=[
            migrations.AlterField('question', 'answered_as', ExactText(db_default='', help_text='the name of the person, which stays when the user is deleted', max_length=200, verbose_name='answered as')),
            migrations.AlterField('question', 'note', ExactText(blank=True, db_default='', max_length=500, verbose_name='note')),
            migrations.AlterField('question', 'noted_as', ExactText(blank=True, db_default='', help_text='the name of the person who wrote the note', max_length=200, verbose_name='noted as')),
            migrations.AlterField('question', 'title', ExactText(max_length=200, verbose_name='title')),
        ]),
    ]
