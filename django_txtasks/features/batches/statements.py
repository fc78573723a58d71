"""The SQL of batches. W1 and W2 are workers, C is a cleaner; ``{now}`` and the like come from the dialect."""

# No row counts the members of a batch. Members that have not ended are live rows that name the batch. A process
# that has ended a member looks for live ones after its COMMIT.
INSERT_BATCH = """
    INSERT INTO txtasks_batch (id, name, hooks) VALUES (%(batch)s, %(name)s, {json}%(hooks)s{end_json})
"""
# A task opens the batch. If that task is a member of another batch, both batches have the same first task. Its id
# is in the batch's row, because members that have ended may have no rows any more when the question comes. (In an
# INSERT, MySQL accepts a subquery on the same table only in FROM.)
INSERT_OPENED_BATCH = """
    INSERT INTO txtasks_batch (id, name, hooks, opened_by, root_task)
    SELECT %(batch)s, %(name)s, {json}%(hooks)s{end_json}, %(opener)s, COALESCE(p.root_task, %(opener)s)
      FROM (SELECT 1 AS one) AS o LEFT JOIN txtasks_batch p ON p.id = %(parent)s
"""
ARE_LIVE = "SELECT id, TRIM(status) FROM txtasks_task WHERE id {in_ids} AND TRIM(status) <> 'dead'"
# Claimed rows are not in the index of members, so that a claim need not write to it: all workers together have
# few claimed rows. One statement reads both at one moment, because a member could move from one to the other
# between two statements.
_WAITING_MEMBER = """
    SELECT id FROM txtasks_task {by_batch}
     WHERE batch = <batch> AND NOT (status = 'claimed') AND NOT (status = 'dead') {sound_id}
     ORDER BY {by_last_member} LIMIT 1
"""
_RUNNING_MEMBER = """
    SELECT id FROM txtasks_task {by_running_member} WHERE batch = <batch> AND status = 'claimed' {sound_id} LIMIT 1
"""
# The waiting member with the highest id, which will probably end last.
LIVE_MEMBER = f"SELECT COALESCE(({_WAITING_MEMBER}), ({_RUNNING_MEMBER}))".replace(
    "<batch>", "%(batch)s"
)
# W1 and W2 have ended the last two members, and both find no live member. One of them locks the batch and looks
# again, in a later statement, whose snapshot is younger than the lock. The other one then finds that the batch
# has ended.
LOCK_BATCH = (
    "SELECT name, hooks FROM txtasks_batch WHERE id = %(batch)s AND finished_at IS NULL {lock}"
)
# A member that is not live and has not failed has succeeded, so the rows of succeeded members need not be kept.
_FAILED_OUTCOMES = "('cancelled', 'discarded', 'expired')"
# A live member, a dead one, and one that has failed otherwise, in one snapshot. Meanwhile W2 may revive, claim
# and bury a dead member: two statements could both miss it, in either order, and the batch would end as a
# success.
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
# The batches of these tasks' work that are open, have failed, or have hooks, which may still run. One statement
# reads all of them, because a batch could end between two statements, and its hook would be missed.
IS_UNSETTLED = "(finished_at IS NULL OR failed OR hook_tasks IS NOT NULL)"
# A condition of ``OLD_FINISHED``. The finished row of a merged tick leads to the task that ran instead, and so to
# the batches which that task has opened: the row stays as long as one of them counts. A member that has failed
# stays until its batch has ended.
MAY_PRUNE = f"""
       AND (merged_into IS NULL
            OR COALESCE((SELECT FALSE FROM txtasks_batch {{by_root}}
                          WHERE root_task = merged_into AND {IS_UNSETTLED} LIMIT 1), TRUE))
       AND (batch IS NULL OR outcome IN ('succeeded', 'merged')
            OR COALESCE((SELECT FALSE FROM txtasks_batch b WHERE b.id = batch AND b.finished_at IS NULL), TRUE))"""
UNSETTLED_BATCHES = f"""
    SELECT root_task, id, finished_at IS NULL, failed, hook_tasks FROM txtasks_batch {{by_root}}
     WHERE root_task {{in_ids}} AND {IS_UNSETTLED}
"""
# W1 is slow, C has given its task to W2, and W2 has ended the task and so the batch: W1 may add no member. The
# lock keeps others from moving W1's row until W1 commits.
LOCK_MEMBER = """
    SELECT t.batch FROM txtasks_task t
     WHERE t.id = %(id)s AND t.attempt = %(attempt)s AND t.worker = %(worker)s
       AND TRIM(t.status) = 'claimed' {lock}
"""
# W2 has read which members are live, and a dead member was revived since. W1, which runs that member, waits until
# W2 has ended the batch, and then adds no member. The lock is shared, so members that add do not wait for each
# other.
BATCH_IS_OPEN = (
    "SELECT name FROM txtasks_batch WHERE id = %(batch)s AND finished_at IS NULL {share}"
)
BATCHES_OF = "SELECT DISTINCT batch FROM txtasks_task WHERE id {in_ids} AND batch IS NOT NULL"
# C looks for batches whose last member was ended by a process that died before it looked, or by an older release.
OPEN_BATCHES = """
    SELECT id FROM txtasks_batch {by_end} WHERE finished_at IS NULL AND id > %(after)s
     ORDER BY finished_at, id LIMIT %(limit)s
"""
WITHOUT_LIVE_MEMBER = f"""
    SELECT b.id FROM txtasks_batch b
     WHERE b.id {{in_ids}} AND b.finished_at IS NULL
       AND COALESCE(({_WAITING_MEMBER}), ({_RUNNING_MEMBER})) IS NULL
""".replace("<batch>", "b.id")
# One snapshot, so that a member that moves meanwhile is counted once.
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
