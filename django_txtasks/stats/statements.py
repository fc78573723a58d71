"""The SQL of the index of causes. Each statement reads one entry, or as many as its LIMIT."""

# On PostgreSQL and SQLite the index has only rows of this condition. On PostgreSQL, a comparison of whole rows
# alone is the place of a probe: with a second condition, each probe would read all entries before the place.
_FAILED = "(cause IS NOT NULL OR status IN ('dead', 'held'))"
NEXT_QUEUE = f"""
    SELECT status, queue_name FROM txtasks_task {{by_cause}}
     WHERE {_FAILED} AND (status, queue_name) > (%(status)s, %(queue)s)
     ORDER BY status, queue_name LIMIT 1
"""
NEXT_CAUSE = f"""
    SELECT status, queue_name, cause FROM txtasks_task {{by_cause}}
     WHERE {_FAILED} AND (status, queue_name, cause) >= (%(status)s, %(queue)s, %(cause)s)
     ORDER BY status, queue_name, cause LIMIT 1
"""
# MariaDB does not use the index to compare whole rows, but it finds a smallest value by one probe.
MIN_QUEUE = """
    SELECT %(status)s, MIN(queue_name) FROM txtasks_task {by_cause}
     WHERE status = %(status)s AND queue_name > %(queue)s
"""
MIN_CAUSE = """
    SELECT %(status)s, %(queue)s, MIN(cause) FROM txtasks_task {by_cause}
     WHERE status = %(status)s AND queue_name = %(queue)s AND cause >= %(cause)s
"""
_ENTRIES = f"""
    FROM txtasks_task {{by_cause}}
   WHERE {_FAILED} AND status = %(status)s AND queue_name = %(queue)s AND cause <is>
"""
SIZE = f"""
    SELECT <number>, (SELECT COUNT(*) FROM (SELECT 1 {_ENTRIES} ORDER BY <first> LIMIT %(limit)s) AS counted),
           (SELECT id {_ENTRIES} ORDER BY <first> LIMIT 1),
           (SELECT id {_ENTRIES} ORDER BY <last> LIMIT 1)
"""
# In the order of the index. PostgreSQL does not know that IS NULL leaves one value; MariaDB would sort by it.
ORDER = ("run_after, id", "run_after DESC, id DESC")
ORDERS = {"postgresql": ("cause, run_after, id", "cause DESC, run_after DESC, id DESC")}
