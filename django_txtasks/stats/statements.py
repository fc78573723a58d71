"""The SQL of the index of causes. Each statement reads one entry, or as many as its LIMIT."""

from django_txtasks.lifecycle.buckets import FAILED

NEXT_CAUSE = f"""
    SELECT status, queue_name, cause FROM txtasks_task {{by_cause}}
     WHERE {FAILED} AND (status, queue_name, cause) >= (%(status)s, %(queue)s, %(cause)s)
     ORDER BY status, queue_name, cause LIMIT 1
"""
# See ``lifecycle.buckets`` for MariaDB.
MIN_CAUSE = """
    SELECT %(status)s, %(queue)s, MIN(cause) FROM txtasks_task {by_cause}
     WHERE status = %(status)s AND queue_name = %(queue)s AND cause >= %(cause)s
"""
_ENTRIES = f"""
    FROM txtasks_task {{by_cause}}
   WHERE {FAILED} AND status = %(status)s AND queue_name = %(queue)s AND cause <is>
"""
SIZE = f"""
    SELECT <number>, (SELECT COUNT(*) FROM (SELECT 1 {_ENTRIES} ORDER BY <first> LIMIT %(limit)s) AS counted),
           (SELECT id {_ENTRIES} ORDER BY <first> LIMIT 1),
           (SELECT id {_ENTRIES} ORDER BY <last> LIMIT 1)
"""
# In the order of the index. PostgreSQL does not know that IS NULL leaves one value; MariaDB would sort by it.
ORDER = ("run_after, id", "run_after DESC, id DESC")
ORDERS = {"postgresql": ("cause, run_after, id", "cause DESC, run_after DESC, id DESC")}
