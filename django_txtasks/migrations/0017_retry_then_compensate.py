"""A crash policy more, in the choices of a column: no SQL."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('txtasks', '0016_step'),
    ]

    operations = [
        migrations.AlterField(
            model_name='task',
            name='on_crash',
            field=models.CharField(choices=[('dead', 'leave it dead'), ('retry', 'run it again'), ('compensate', 'leave it dead and run its compensation'), ('retry+undo', 'run it again, and in the end run its compensation')], db_default='dead', max_length=10),
        ),
    ]
