"""The SQL of the index of causes. Each statement reads one entry, or as many as its LIMIT."""

# One probe of the index. SQLite would not begin at the place to compare whole rows.
NEXT_CAUSE = """
    SELECT cause FROM txtasks_task {by_cause}
     WHERE {is_failed} AND {failed_status} = %(status)s AND queue_name = %(queue)s AND cause >= %(cause)s
     ORDER BY cause LIMIT 1
"""
# Loose scans of PostgreSQL, each step one probe: it takes longer to plan a statement than to probe.
_FIRST = "SELECT <columns> FROM txtasks_task WHERE {is_failed} AND status >= %(first)s ORDER BY <columns> LIMIT 1"
_WALK = f"""
    WITH RECURSIVE places AS (({_FIRST})
        UNION ALL
        SELECT following.* FROM places, LATERAL (
            SELECT <columns> FROM txtasks_task WHERE {{is_failed}} AND (<columns>) > (<places>)
             ORDER BY <columns> LIMIT 1) AS following)
    SELECT * FROM places LIMIT %(most)s
"""
_QUEUE, _CAUSE = ("status", "queue_name"), ("status", "queue_name", "cause")


def _walk(columns: tuple[str, ...]) -> str:
    places = ", ".join(f"places.{column}" for column in columns)
    return _WALK.replace("<columns>", ", ".join(columns)).replace("<places>", places)


ALL_QUEUES = _walk(_QUEUE)
ALL_CAUSES = _walk(_CAUSE)
"""In each queue, the tasks without a cause come last. They are returned only if the queue has no others."""
_ENTRIES = """
    FROM txtasks_task {by_cause}
   WHERE {is_failed} AND {failed_status} = <status> AND queue_name = <queue> AND cause <is>
"""
SIZE = f"""
    SELECT <number>,
           (SELECT COUNT(*) FROM (SELECT 1 {_ENTRIES} ORDER BY <first> LIMIT %(limit)s) AS counted),
           (SELECT id {_ENTRIES} ORDER BY <first> LIMIT 1),
           (SELECT id {_ENTRIES} ORDER BY <last> LIMIT 1)
"""
# In the order of the index. PostgreSQL does not know that IS NULL leaves one value; MariaDB would sort by it.
ORDER = ("run_after, id", "run_after DESC, id DESC")
ORDERS = {"postgresql": ("cause, run_after, id", "cause DESC, run_after DESC, id DESC")}
