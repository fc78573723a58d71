"""On PostgreSQL, the view of the load without last chances after a crash, which have processes of their own."""

from importlib import import_module

from django.db import migrations

of_view = import_module('django_txtasks.migrations.0004_beyond_one_machine')
FUNCTION = of_view.LOAD.partition('CREATE VIEW')[0].replace('CREATE FUNCTION', 'CREATE OR REPLACE FUNCTION', 1)
"""The statement that replaces the function. The view on it stays."""
CHANGES = {
    """w.task_names @> '["@drain"]' AS""": """w.task_names @> '["@drain"]' OR w.task_names @> '["@alone"]' AS""",
    'AND t.priority = head.priority\n': 'AND t.priority = head.priority <no last chance>\n',
    "(t.status, t.lane) > ('pending', '')\n": "(t.status, t.lane) > ('pending', '') <no last chance>\n",
}
NO_LAST_CHANCE = 'AND (t.crashes = 0 OR t.crashes < t.max_crashes - 1)'


def without_last_chances(function: str) -> str:
    """Return the statement without last chances and their workers."""
    for old, new in CHANGES.items():
        before, _, after = function.partition(old)
        function = before + new + after
    return function.replace('<no last chance>', NO_LAST_CHANCE)


class Migration(migrations.Migration):

    dependencies = [
        ('txtasks', '0008_text_of_all_languages'),
    ]

    operations = [
        of_view.OnPostgreSQL(without_last_chances(FUNCTION), FUNCTION, hints={'model_name': 'task'}),
    ]
