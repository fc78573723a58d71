"""What releases of the code have said of a schedule, so that an older one takes nothing back by itself."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('txtasks', '0023_small_tables_storage'),
    ]

    operations = [
        migrations.AddField(
            model_name='schedule',
            name='code_versions',
            field=models.JSONField(db_default=models.Value([], models.JSONField()), editable=False, help_text='digests of what releases of the code have said, the newest last'),
        ),
    ]
