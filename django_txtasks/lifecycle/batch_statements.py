"""The SQL of batches. W1 and W2 are workers, C is a cleaner; ``{now}`` and the like come from the dialect."""

# No row counts the members of a batch: those that have not ended are live rows that name it, and whoever has ended
# one looks, after his COMMIT, whether there are any.
INSERT_BATCH = """
    INSERT INTO txtasks_batch (id, name, hooks) VALUES (%(batch)s, %(name)s, {json}%(hooks)s{end_json})
"""
# A task opens the batch. If that task is a member of another batch, both batches have the same first task. It is
# written down, because members that have ended may have no rows any more when somebody asks. (MySQL takes a
# subquery about the same table in no other place of an INSERT than FROM.)
INSERT_OPENED_BATCH = """
    INSERT INTO txtasks_batch (id, name, hooks, opened_by, root_task)
    SELECT %(batch)s, %(name)s, {json}%(hooks)s{end_json}, %(opener)s, COALESCE(p.root_task, %(opener)s)
      FROM (SELECT 1 AS one) AS o LEFT JOIN txtasks_batch p ON p.id = %(parent)s
"""
ARE_LIVE = "SELECT id, TRIM(status) FROM txtasks_task WHERE id {in_ids} AND TRIM(status) <> 'dead'"
# Claimed rows are not in the index of members, so that a claim need not write there: those of all workers are few.
# One statement sees both at one moment; between two of them a member could move from one to the other.
_WAITING_MEMBER = """
    SELECT id FROM txtasks_task {by_batch}
     WHERE batch = <batch> AND NOT (status = 'claimed') AND NOT (status = 'dead') {sound_id}
     ORDER BY {by_last_member} LIMIT 1
"""
_RUNNING_MEMBER = """
    SELECT id FROM txtasks_task {by_running_member} WHERE batch = <batch> AND status = 'claimed' {sound_id} LIMIT 1
"""
# Of those that wait the one with the highest id, which is likely to be the last one to end.
LIVE_MEMBER = f"SELECT COALESCE(({_WAITING_MEMBER}), ({_RUNNING_MEMBER}))".replace(
    "<batch>", "%(batch)s"
)
# W1 and W2 have ended the last two members and both find none left: one of them locks the batch, and looks again,
# in a statement of its own, whose snapshot is younger than the lock; the other one finds that it has ended.
LOCK_BATCH = (
    "SELECT name, hooks FROM txtasks_batch WHERE id = %(batch)s AND finished_at IS NULL {lock}"
)
# What is not live and has not failed has succeeded, so that of what succeeded nothing need be kept.
_FAILED_OUTCOMES = "('cancelled', 'discarded', 'expired')"
# A live member, a dead one, and one that has failed otherwise, in one snapshot. W2 may revive, claim and bury a
# dead member meanwhile: two statements, in either order, would both miss it, and the batch would end as a success.
STATE_OF_BATCH = f"""
    {LIVE_MEMBER},
           (SELECT id FROM txtasks_task {{by_batch}}
             WHERE batch = %(batch)s AND NOT (status = 'claimed') AND TRIM(status) = 'dead' LIMIT 1),
           (SELECT id FROM txtasks_finishedtask {{by_ended}}
             WHERE batch = %(batch)s AND outcome IN {_FAILED_OUTCOMES} LIMIT 1)
"""
END_BATCH = """
    UPDATE txtasks_batch SET finished_at = {now}, failed = %(failed)s, hook_tasks = {json}%(ids)s{end_json}
     WHERE id = %(batch)s AND finished_at IS NULL
"""
# Batches of the work of these tasks that go on or have failed, and those that have hooks, which may go on. One
# statement asks for all: between two statements a batch could end, and its hook would be missed.
IS_UNSETTLED = "(finished_at IS NULL OR failed OR hook_tasks IS NOT NULL)"
UNSETTLED_BATCHES = f"""
    SELECT root_task, id, finished_at IS NULL, failed, hook_tasks FROM txtasks_batch {{by_root}}
     WHERE root_task {{in_ids}} AND {IS_UNSETTLED}
"""
# W1 is slow, C has given its task to W2, which has ended it, and with it the batch: W1 may add no member.
# Until W1 commits, nobody can move its row.
LOCK_MEMBER = """
    SELECT t.batch FROM txtasks_task t
     WHERE t.id = %(id)s AND t.attempt = %(attempt)s AND t.worker = %(worker)s
       AND TRIM(t.status) = 'claimed' {lock}
"""
# W2 has asked which members there are, and a dead one was revived since: W1, which runs that member, waits until
# W2 has ended the batch, and adds none. The lock is shared, so members that add do not wait for each other.
BATCH_IS_OPEN = (
    "SELECT name FROM txtasks_batch WHERE id = %(batch)s AND finished_at IS NULL {share}"
)
BATCHES_OF = "SELECT DISTINCT batch FROM txtasks_task WHERE id {in_ids} AND batch IS NOT NULL"
# C looks after those whose last member was ended by somebody who died before he looked, or does not know batches.
OPEN_BATCHES = """
    SELECT id FROM txtasks_batch {by_end} WHERE finished_at IS NULL AND id > %(after)s
     ORDER BY finished_at, id LIMIT %(limit)s
"""
WITHOUT_LIVE_MEMBER = f"""
    SELECT b.id FROM txtasks_batch b
     WHERE b.id {{in_ids}} AND b.finished_at IS NULL
       AND COALESCE(({_WAITING_MEMBER}), ({_RUNNING_MEMBER})) IS NULL
""".replace("<batch>", "b.id")
# In one snapshot, so that a member that moves meanwhile is counted once.
COUNTS_OF_BATCH = """
    SELECT state, COUNT(*) FROM (
        SELECT TRIM(status) AS state FROM txtasks_task {by_batch}
         WHERE batch = %(batch)s AND NOT (status = 'claimed') LIMIT %(limit)s) AS m GROUP BY state
    UNION ALL
    SELECT 'claimed', COUNT(*) FROM (
        SELECT 1 FROM txtasks_task {by_running_member}
         WHERE batch = %(batch)s AND status = 'claimed' LIMIT %(limit)s) AS r
    UNION ALL
    SELECT 'succeeded', COUNT(*) FROM (
        SELECT 1 FROM txtasks_finishedtask {by_ended}
         WHERE batch = %(batch)s AND outcome = 'succeeded' LIMIT %(limit)s) AS s
    UNION ALL
    SELECT 'failed', COUNT(*) FROM (
        SELECT 1 FROM txtasks_finishedtask {by_ended}
         WHERE batch = %(batch)s AND outcome IN <failed> LIMIT %(limit)s) AS f
""".replace("<failed>", _FAILED_OUTCOMES)
OLD_BATCHES = """
    SELECT id FROM txtasks_batch {by_end}
     WHERE finished_at < {ago} ORDER BY finished_at LIMIT %(limit)s {skip_locked}
"""
FORGET_BATCHES = "DELETE FROM txtasks_batch WHERE id {in_ids}"
