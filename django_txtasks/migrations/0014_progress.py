"""How far the tasks of a worker have come, in its row. A column with a default; workers of before do not need it."""

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
    ]
