"""The SQL of lanes, in the transaction of the claim. The comment beside each statement says why it is safe.

``{now}`` and the like come from the dialect, as in ``core.rows.statements``. W1 is a worker.
"""

# Only the session that holds the lane's row lock claims in the lane. It counts the claimed rows in a later
# statement, which has a later snapshot, so the count holds until it commits.
NEW_LANES = "{insert_new} INTO txtasks_lane (name, served_at) VALUES {rows} {or_leave}"
KNOWN_LANES = "SELECT name FROM txtasks_lane WHERE name {in_names}"
LOCK_LANES = """
    SELECT name, at_most, rate, burst, weight, paused_at IS NOT NULL, tokens, {since_served} AS idle, tag,
           {until_held} AS held, CAST({now} AS {text}) AS seen_at
      FROM txtasks_lane WHERE name {in_names} {skip_locked}
"""
CLAIMED_IN_LANES = """
    SELECT lane, COUNT(*) FROM txtasks_task {by_lane}
     WHERE status = 'claimed' AND lane > '' AND lane {in_names} GROUP BY lane
"""
WAITING_IN_LANE = """
    SELECT <number> AS number, COUNT(*) FROM (
        SELECT lane FROM txtasks_task WHERE status = 'pending' AND <start> LIMIT %(limit)s) AS w<number>
     WHERE lane = <lane>
"""
# PostgreSQL would walk the whole index for lane = …, because it leaves out the status, its first column.
START_OF_LANE = "lane = <lane>"
POSTGRES_START_OF_LANE = """
    (status, lane) >= ('pending', <lane>) ORDER BY status, lane, queue_name, priority, run_after, id
"""
SERVED = """
    UPDATE txtasks_lane SET tag = %(tag)s, tokens = %(tokens)s, served_at = %(seen_at)s WHERE name = %(name)s
"""
HOLD_LANE = """
    UPDATE txtasks_lane SET held_until = {later}
     WHERE name = %(name)s AND (held_until IS NULL OR held_until < {later})
"""
GREATEST_VIRTUAL_TIME = "SELECT MAX(tag) FROM txtasks_lane"
_UNUSED_LANE = """
       at_most IS NULL AND rate = '' AND burst IS NULL AND weight IS NULL AND paused_at IS NULL
       AND (held_until IS NULL OR held_until < {now}) AND served_at < {ago}
"""
UNUSED_LANES = f"""
    SELECT name, tokens, {{since_served}} FROM txtasks_lane
     WHERE name > %(behind)s AND {_UNUSED_LANE} ORDER BY name LIMIT %(limit)s
"""
# W1 may have claimed tasks of the lane since C has read it
FORGET_LANES = f"DELETE FROM txtasks_lane WHERE name {{in_names}} AND {_UNUSED_LANE}"
