"""Tasks can wait in lanes, which have limits.

A new table, and a column with a default that the database keeps beside the table: no row is rewritten. Workers of
before take tasks of a lane like any other, whatever its limits, until they are replaced.
"""

import django_txtasks.models
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('txtasks', '0008_merged_index'),
    ]

    operations = [
        migrations.CreateModel(
            name='Lane',
            fields=[
                ('name', django_txtasks.models.LaneName(max_length=200, primary_key=True, serialize=False, verbose_name='lane')),
                ('at_most', models.IntegerField(blank=True, help_text='run at once', null=True)),
                ('rate', models.CharField(blank=True, db_default='', help_text='starts, such as 10/s or 100/m', max_length=20)),
                ('burst', models.IntegerField(blank=True, help_text='starts at the same time', null=True)),
                ('weight', models.FloatField(blank=True, help_text='share beside other lanes', null=True)),
                ('paused_at', models.DateTimeField(blank=True, null=True)),
                ('paused_by', models.CharField(blank=True, db_default='', max_length=150)),
                ('reason', models.CharField(blank=True, db_default='', help_text='for whoever finds it paused', max_length=200)),
                ('tokens', models.FloatField(help_text='starts that its rate allows now', null=True)),
                ('served_at', models.DateTimeField(help_text='when a worker has last taken tasks of it', null=True)),
                ('tag', models.FloatField(db_default=0.0, help_text='what it was served, by its weight; the least comes next')),
                ('held_until', models.DateTimeField(help_text='until when a task of it has asked to wait', null=True)),
            ],
            options={
                'default_permissions': ('view', 'change'),
            },
        ),
        migrations.AddField(
            model_name='task',
            name='lane',
            field=django_txtasks.models.LaneName(db_default='', help_text='whose limits it shares; empty = in none', max_length=200),
        ),
        migrations.AlterField(
            model_name='worker',
            name='protocol',
            field=models.SmallIntegerField(db_default=0, help_text='what its release knows of: 1 = paused queues, 2 = lanes, too'),
        ),
    ]
