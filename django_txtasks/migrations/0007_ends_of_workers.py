"""How worker processes have ended, and the task functions that they held then."""

from django.db import migrations, models

from django_txtasks.models import ExactText


class Migration(migrations.Migration):

    dependencies = [
        ('txtasks', '0006_last_chances'),
    ]

    operations = [
        migrations.AddField(
            model_name='endedworker',
            name='held',
            field=models.JSONField(db_default=models.Value({}, models.JSONField()), help_text='the task functions that it held when it ended otherwise, each with a queue'),
        ),
        migrations.AddField(
            model_name='endedworker',
            name='how',
            field=ExactText(db_default='', help_text='how its process ended; empty = in good order', max_length=30),
        ),
        migrations.AddField(
            model_name='worker',
            name='how',
            field=ExactText(db_default='', help_text='how its process ended; empty = it runs, or not known', max_length=30),
        ),
    ]
