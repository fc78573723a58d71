"""The SQL of schedules and their ticks.

In the comments, C1 and C2 are cleaners. Fields such as ``{now}`` are filled from the dialect.
"""

NOW_IN_UTC = "SELECT CAST({now}{at_utc} AS {text})"
# C1 and C2 see the same tick: C1 locks the row, and C2 skips it. If C2 locks the row after C1's commit, the row
# has the next tick, and is not due. So each tick is written once.
_HERE = "enabled AND <names> AND queue_name {in_queues} AND name NOT IN (<skipped>) <crons>"
NAMES = "{name} {in_names}"
# The code of a task that is handed over is elsewhere, so no cleaner needs to know it.
NAMES_AND_HANDED = "({name} {in_names} OR queue_name {in_handed})"
NEXT_TICK = f"""
    SELECT CAST(next_at{{at_utc}} AS {{text}}), CAST({{now}}{{at_utc}} AS {{text}}) FROM txtasks_schedule
     WHERE {_HERE} ORDER BY next_at IS NOT NULL, next_at LIMIT 1
"""
DUE_SCHEDULES = f"""
    SELECT name, task_name, queue_name, args, kwargs, cron, every, tz, catch_up, grace,
           CAST(next_at{{at_utc}} AS {{text}}), CAST(last_at{{at_utc}} AS {{text}}), last_task,
           CAST(waiting_since{{at_utc}} AS {{text}}), CAST({{now}}{{at_utc}} AS {{text}})
      FROM txtasks_schedule
     WHERE {_HERE} AND (next_at IS NULL OR next_at <= {{later}})
     ORDER BY next_at IS NOT NULL, next_at LIMIT %(limit)s {{skip_locked}}
"""
# Only a task that has not begun delays the next tick. A task that waits for a retry has begun.
UNBEGUN = (
    "SELECT id FROM txtasks_task WHERE id {in_ids} AND TRIM(status) = 'pending' AND attempt = 0"
)
# This transaction has locked the rows, so they exist and the statement only updates them.
TICKED = """
    INSERT INTO txtasks_schedule (name, task_name, next_at, last_at, last_task, waiting_since) VALUES {rows}
"""
_TICKED = ("next_at", "last_at", "last_task", "waiting_since")
TO_TICKED = "ON CONFLICT (name) DO UPDATE SET error = '', " + ", ".join(
    f"{one} = excluded.{one}" for one in _TICKED
)
MYSQL_TO_TICKED = "ON DUPLICATE KEY UPDATE error = '', " + ", ".join(
    f"{one} = VALUES({one})" for one in _TICKED
)
DISABLE_SCHEDULE = (
    "UPDATE txtasks_schedule SET enabled = FALSE, error = %(error)s WHERE name = %(name)s"
)
NOTE_OF_SCHEDULE = (
    "UPDATE txtasks_schedule SET error = %(error)s WHERE name = %(name)s AND error <> %(error)s"
)
# C1 and C2 see the same late tick: the one whose update changes the row sends the signal.
TELL_UNREADY = """
    UPDATE txtasks_schedule SET told_at = %(tick)s
     WHERE name = %(name)s AND (told_at IS NULL OR told_at < %(tick)s)
"""
