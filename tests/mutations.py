"""Remove one guard of the protocol at a time: the tests that should notice must fail each time.

    python tests/services.py -- python tests/mutations.py [word in the name of a guard]

Works on a copy of the tree. First the tests have to pass there as it is; then each guard is taken out by an
exact replacement of text, which has to be found once. Prints which test noticed, and ends with 1 if one
guard can go without any test noticing. Takes some minutes, which is why pytest does not collect it.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "dist", "build", "_build", "*.sqlite3")
PASSED, FAILED = 0, 1  # what pytest ends with; anything else says that it could not do its work
PATIENCE = 240  # seconds; a test that never ends has noticed, too


@dataclass(frozen=True)
class Mutant:
    """The tree without one guard.

    Attributes:
        guard: what is removed.
        file: where, below ``django_txtasks``.
        changes: texts and what comes in their place.
        tests: files that should notice, below ``tests``.
        databases: where it matters.
    """

    guard: str
    file: str
    changes: dict[str, str]
    tests: str
    databases: tuple[str, ...] = ("POSTGRES",)


BOTH = ("POSTGRES", "MARIADB")
FENCE = "WHERE id = %(id)s AND attempt = %(attempt)s AND worker = %(worker)s AND TRIM(status) = 'claimed'"
MUTANTS = [
    Mutant("fence: attempt and worker", "lifecycle/statements.py",
           {FENCE: "WHERE id = %(id)s AND TRIM(status) = 'claimed'"}, "test_lifecycle.py"),
    Mutant("fence: attempt alone", "lifecycle/statements.py",
           {FENCE: FENCE.replace("AND attempt = %(attempt)s ", "")}, "test_lifecycle.py"),
    Mutant("fence: worker alone", "lifecycle/statements.py",
           {FENCE: FENCE.replace("AND worker = %(worker)s ", "")}, "test_lifecycle.py"),
    Mutant("a plan that is kept follows the index", "lifecycle/prepared.py",
           {"SET LOCAL enable_seqscan = off; {execute}": "{execute}"}, "test_committing_along.py"),
    Mutant("and what the COMMIT looks at does not have to", "lifecycle/prepared.py",
           {"; SET LOCAL enable_seqscan TO DEFAULT": ""}, "test_committing_along.py"),
    Mutant("a session that keeps nothing costs no attempt", "lifecycle/transactions.py",
           {"        prepared.give_up_if_missing(connection.alias, error)\n": ""}, "test_committing_along.py"),
    Mutant("a session of a pooler keeps no statement ready", "lifecycle/sessions.py",
           {"and bool(_known.get(session))": ""}, "test_committing_along.py"),
    Mutant("nor does one of Django's pool", "lifecycle/sessions.py",
           {"bool(_known.get(session)) and not is_pooled(wrapper)": "bool(_known.get(session))"},
           "test_committing_along.py"),
    Mutant("what a session was told to forget is not asked of it", "worker/connections.py",
           {"prepared.forget(connection.connection)": "pass"}, "test_committing_along.py"),
    Mutant("a turn waits for no task that takes long", "worker/gathering.py",
           {"return now - SOON_TASKS * task_seconds, latest": "return 0.0, latest"}, "test_loop_cost.py"),
    Mutant("fence of a batch of outcomes", "lifecycle/outcomes.py",
           {"recorded.done if fence in held": "recorded.done if fence[0] in {one[0] for one in held}"},
           "test_lifecycle.py"),
    Mutant("fence of finishing many: the attempt", "lifecycle/statements.py",
           {" AND attempt = (CAST(%(attempts)s AS int[])){_OF_ID}": ""},
           "test_lifecycle.py test_turn_writer.py"),
    Mutant("fence of finishing many: the worker", "lifecycle/statements.py",
           {"AND worker = %(worker)s AND TRIM(status) = 'claimed' {{{{skip":
            "AND TRIM(status) = 'claimed' {{{{skip"}, "test_lifecycle.py test_turn_writer.py"),
    Mutant("a finish in one statement needs the beat", "lifecycle/engines/postgresql.py",
           {'only_if="EXISTS (SELECT FROM beat) AND"': 'only_if=""'}, "test_turn_writer.py"),
    Mutant("a finish at once has each task once", "lifecycle/engines/found.py",
           {"len({one.attempt.task_id.int for one in ended}) == len(ended)": "True"}, "test_turn_writer.py"),
    Mutant("a claim in one statement takes no more than fit", "lifecycle/engines/postgresql.py",
           {"others + GREATEST(short - %(ahead)s, 0) <= %(alone)s": "TRUE"}, "test_turn_writer.py"),
    Mutant("a turn in blocks needs the beat", "lifecycle/engines/mariadb.py",
           {"        if not is_alive:\n            return None\n": ""}, "test_turn_writer.py", ("MARIADB",)),
    Mutant("a turn in blocks finishes what is held", "lifecycle/engines/mariadb.py",
           {"recorded.done if one.attempt.fence in held": "recorded.done if one.attempt.fence"},
           "test_turn_writer.py", ("MARIADB",)),
    Mutant("a turn in blocks that fails is rolled back", "lifecycle/transactions.py",
           {"            connections[alias].rollback()\n": "            pass\n"},
           "test_turn_costs.py", ("MARIADB",)),
    Mutant("a scan in blocks goes on behind its cursors", "lifecycle/engines/mariadb.py",
           {"            {_choosing_behind(n, cursors)}\n": "            {_choosing(n, 'head', '')}\n"},
           "test_runs.py test_engines.py", ("MARIADB",)),
    Mutant("a scan in one statement goes on behind its cursors", "lifecycle/engines/postgresql.py",
           {"(run_after, id) > (heads.mark_time, heads.mark_id)": "TRUE"}, "test_runs.py"),
    Mutant("a scan of what is recent looks no further back", "lifecycle/engines/postgresql.py",
           {'heads, begin = (_RECENT_HEADS, "{ago}")': 'heads, begin = (_RECENT_HEADS, "\'-infinity\'")'},
           "test_runs.py"),
    Mutant("a batch does not end after a scan of what is recent", "worker/schedule.py",
           {"or result.has_more or result.is_partial)": "or result.has_more)"}, "test_runs.py"),
    Mutant("after a scan that took too long the next ones look at parts", "worker/scan_cursor.py",
           {"            self._is_slow = True\n": "            self._is_slow = False\n"},
           "test_turn_failures.py"),
    Mutant("a part that took too long is made smaller", "worker/sweep.py",
           {"self._span = max(1, (end - at) >> (FINER_BITS << self._too_long))": "pass"},
           "test_turn_failures.py"),
    Mutant("a sweep whose turn was rolled back goes on from where that began", "worker/sweep.py",
           {"        self._place = self._before\n": "        pass\n"}, "test_turn_failures.py"),
    Mutant("a part ends before its end", "lifecycle/statements.py",
           {'BEFORE_TIME = "AND run_after < %(end_time)s"': 'BEFORE_TIME = ""'},
           "test_turn_failures.py"),
    Mutant("what failed together is tried one by one", "worker/schedule.py",
           {"        if self._back_off.one_by_one:\n            scan,": "        if False:\n            scan,"},
           "test_turn_failures.py"),
    Mutant("a success of one kind of turn ends no other's back-off", "worker/back_off.py",
           {"for kind in self.tried if self._failures_of and has_tried else ():": "for kind in Kind:"},
           "test_turn_failures.py"),
    Mutant("a task that is in hand does not run a second time beside itself", "worker/workload.py",
           {"        claimed = self.slots.in_hand.without_second(claimed, self.buffer.keys())\n": ""},
           "test_turn_failures.py"),
    Mutant("what is kept back is known when claims are compared", "worker/slots.py",
           {"for one in [*attempts, *self.in_hand.kept_back]}": "for one in attempts}"},
           "test_turn_failures.py"),
    Mutant("a task that has crashed shares no slot", "lifecycle/statements.py",
           {"AND crashes = 0 AND max_crashes > 1": "AND max_crashes > 1"}, "test_runs.py"),
    Mutant("a task that may crash once shares no slot", "lifecycle/statements.py",
           {"AND crashes = 0 AND max_crashes > 1": "AND crashes = 0"}, "test_runs.py"),
    Mutant("a task that may not run again shares no slot", "lifecycle/statements.py",
           {"on_crash = 'retry' AND crashes": "crashes"}, "test_runs.py"),
    Mutant("a claim that is too old does not begin", "worker/slot_threads.py",
           {"while (now := time.monotonic()) < batch.good_until:":
            "while (now := time.monotonic()) or True:"}, "test_runs.py"),
    Mutant("SKIP LOCKED on PostgreSQL", "lifecycle/dialect.py",
           {'skip_locked="FOR NO KEY UPDATE SKIP LOCKED"': 'skip_locked="FOR NO KEY UPDATE"'},
           "test_lifecycle.py"),
    Mutant("SKIP LOCKED on MariaDB", "lifecycle/dialect.py",
           {'skip_locked="FOR UPDATE SKIP LOCKED"': 'skip_locked="FOR UPDATE"'},
           "test_lifecycle.py", ("MARIADB",)),
    Mutant("choosing rows locks them", "lifecycle/dialect.py",
           {'skip_locked="FOR NO KEY UPDATE SKIP LOCKED"': 'skip_locked=""'}, "test_lifecycle.py"),
    Mutant("the claim counts the attempt", "lifecycle/statements.py",
           {"attempt = attempt + 1, worker": "worker"}, "test_lifecycle.py", BOTH),
    Mutant("run_after in the scan", "lifecycle/statements.py",
           {'DUE = "AND run_after <= {now} {after}"': 'DUE = "{after}"'},
           "test_runs.py", BOTH),
    Mutant("run_after of a hinted task", "lifecycle/engines/portable.py",
           {"[one for one in candidates if one.wait <= 0 and not one.lane]": "[one for one in candidates]"},
           "test_turn_writer.py", ("MARIADB",)),
    Mutant("LOSE looks at the beat again", "lifecycle/statements.py",
           {"AND NOT lost AND beat = %(beat)s": "AND NOT lost"}, "test_lifecycle.py", BOTH),
    Mutant("BEAT refuses a lost worker", "lifecycle/statements.py",
           {"will = %(will)s\n     WHERE id = %(worker)s AND NOT lost":
            "will = %(will)s\n     WHERE id = %(worker)s"}, "test_lifecycle.py", BOTH),
    Mutant("a turn obeys the beat's answer", "worker/registration.py",
           {"            raise DeclaredLost\n\n    def beat_alone": "            pass\n\n    def beat_alone"},
           "test_turn_writer.py"),
    Mutant("the beat is in the claim's transaction", "worker/turn_writer.py",
           {"            self.registration.beat(slots.running, connected)\n":
            "            self.registration.beat(slots.running, connected)\n"
            "        with own_transaction(self.alias, limit=self.config.lease / 2):\n"},
           "test_turn_writer.py"),
    Mutant("a claim in one statement needs the beat", "lifecycle/engines/postgresql.py",
           {"SELECT fitting.id FROM beat, fitting": "SELECT fitting.id FROM fitting"}, "test_turn_writer.py"),
    Mutant("a claim in one statement takes what is due", "lifecycle/engines/postgresql.py",
           {"FROM chosen WHERE wait <= 0": "FROM chosen"}, "test_turn_writer.py"),
    Mutant("reconciliation after an unknown COMMIT", "worker/turn_writer.py",
           {"self.reconciliation.reconcile(me, slots.holds()) if is_due else []": "[]"},
           "test_turn_writer.py"),
    Mutant("what runs is not given back", "worker/reconciliation.py",
           {"unknown = there - running - ": "unknown = there - "}, "test_turn_writer.py"),
    Mutant("recover is fenced by what was seen", "lifecycle/cleaning.py",
           {"    if not fetch(alias, statements.LOCK_CLAIMED, ids=[attempt.task_id]):\n":
            "    held = fetch(alias, statements.LOCK_CLAIMED, ids=[attempt.task_id])\n"
            "    for _, number, worker in held:\n"
            "        attempt = attempt._replace(number=number, worker=as_uuid(worker))\n"
            "    if not held:\n"}, "test_lifecycle.py", BOTH),
    Mutant("recover takes lost workers' claims only", "lifecycle/statements.py",
           {"SELECT id, host, pid FROM txtasks_worker WHERE lost":
            "SELECT id, host, pid FROM txtasks_worker"}, "test_lifecycle.py"),
    Mutant("an orderly stop is no crash", "lifecycle/cleaning.py",
           {"free = bool(stopped) and": "free = False and"}, "test_orderly_ends.py"),
    Mutant("orderly stops in a row end at last", "lifecycle/cleaning.py",
           {" and not _is_stopped_too_often(attempt)": ""}, "test_orderly_ends.py"),
    Mutant("a default task that is stopped runs again for nobody", "lifecycle/cleaning.py",
           {"policy.retries and not _is": "not _is",
            "again = policy.retries and": "again ="}, "test_orderly_ends.py"),
    Mutant("what runs is let go by a lost worker only", "worker/leaving.py",
           {"        workers.give_up(writer.alias, me)\n        recorded": "        recorded"},
           "test_orderly_ends.py"),
    Mutant("an outcome that is not recorded keeps its claim", "worker/leaving.py",
           {"        if key in unrecorded:\n": "        if False:\n"}, "test_orderly_ends.py"),
    Mutant("all that has ended is recorded before the rest is let go", "worker/worker.py",
           {"        self.turns.release(slots.release(stalled=False))\n        self.turns.record_all()\n":
            "        self.turns.release(slots.release(stalled=False))\n"},
           "test_orderly_ends.py"),
    Mutant("in a backlog a turn serves several slots", "worker/turns.py",
           {" if self.schedule.has_backlog else due": " if False else due"}, "test_loop_cost.py"),
    Mutant("the loop is not woken by each slot", "worker/slot_threads.py",
           {"        self.over.append(batch)\n        if len(self.over) >= self._wake_after:":
            "        self.over.append(batch)\n        if True:"}, "test_loop_cost.py"),
    Mutant("what ended during a turn wakes the loop", "worker/slot_threads.py",
           {"slots\n        if len(self.over) >= self._wake_after:": "slots\n        if False:"},
           "test_loop_cost.py"),
    Mutant("max_crashes", "lifecycle/cleaning.py",
           {" and crashes < orphan.max_crashes": ""}, "test_lifecycle.py"),
    Mutant("a default task is never run again silently", "lifecycle/cleaning.py",
           {"again = policy.retries and crashes": "again = crashes"}, "test_lifecycle.py"),
    Mutant("an atomic finish of 0 rows rolls back", "lifecycle/outcomes.py",
           {"    _hit(alias, statements.FINISH, attempt)":
            "    task_id, number, worker = attempt.fence\n"
            "    execute(alias, statements.FINISH, id=task_id, attempt=number, worker=worker)"},
           "test_lifecycle.py", ("SQLITE",)),
    Mutant("an atomic finish of 0 rows commits nothing", "lifecycle/statements.py",
           {"ELSE '{NOT_HELD}' END": "ELSE '0' END"}, "test_lifecycle.py"),
    Mutant("a block inside another one is not committed by its finish", "lifecycle/transactions.py",
           {"if not connection.in_atomic_block or connection.savepoint_ids or": "if"},
           "test_committing_along.py", BOTH),
    Mutant("an atomic finish of 0 rows does not commit its block", "lifecycle/statements.py",
           {"ELSE SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{NOT_HELD}'; END IF;":
            "END IF; SET autocommit = 1;"},
           "test_committing_along.py", ("MARIADB",)),
    Mutant("an atomic task is one transaction", "worker/runner.py",
           {"        with transaction.atomic(using=self.alias, durable=True):\n":
            "        if True:\n"}, "test_worker.py"),
    Mutant("hints are sent after the commit", "commit_hints.py",
           {"connection.on_commit(hook.send_hints)": "hook.send_hints()"}, "test_enqueueing.py"),
    Mutant("the row is written in the transaction", "enqueueing.py",
           {"    written = write(connections[bound.alias], task)\n    handle":
            "    connections[bound.alias].on_commit(lambda: write(connections[bound.alias], task))\n"
            "    written: Any = None\n    handle"},
           "test_enqueueing.py"),
    Mutant("a rolled-back savepoint takes its hints along", "commit_hints.py",
           {" if its == savepoints": ""}, "test_bad_calls.py"),
    Mutant("a statement ends at so many bytes", "lifecycle/enqueueing.py",
           {" or size > BYTES_PER_STATEMENT": ""}, "test_bad_calls.py"),
    Mutant("a queue is looked for at each call of a function", "calls.py",
           {"        check_queue(bound.defaults.queue_name)\n": ""}, "test_enqueue_cost.py"),
    Mutant("no hint is given to a connection that has ended", "broker/connection.py",
           {"        if self.has_something_to_read():\n            return False\n": ""}, "test_sending_hints.py"),
    Mutant("the result of a merged request is that of its run", "lifecycle/standing.py",
           {"        elif task_id in merged:\n": "        elif False:\n"}, "test_waiting.py"),
    Mutant("a task does not wait for another one", "waiting.py",
           {"    if current.get() is not None:\n": "    if False:\n"}, "test_waiting.py"),
    Mutant("waits: what a step of ours meets is repeated", "lifecycle/transactions.py",
           {"for _ in range(TIMES if": "for _ in range(0 if"}, "test_waits.py"),
    Mutant("waits: a sleep that is short is told of", "lifecycle/outcomes.py",
           {"    if suspended:": "    if False:"}, "test_database_hints.py"),
    Mutant("batches: the hooks of an end that no worker saw are told of", "lifecycle/batches.py",
           {"if follow_ups and tell_workers is not None:": "if False:"}, "test_database_hints.py"),
    Mutant("batches: a worker's looks take turns", "worker/batch_look.py",
           {"ids_in_order[place:] + ids_in_order[:place]": "ids_in_order"}, "test_batches.py"),
    Mutant("batches: one that is locked keeps no cleaner", "cleaner/upkeep.py",
           {"if not is_locked or": "if True or"}, "test_batches.py"),
    Mutant("who waits for a result in its transaction hears of it", "waiting.py",
           {"    if connection.in_atomic_block or not": "    if False and not"}, "test_waiting.py"),
    Mutant("the progress of a task that has ended is forgotten", "worker/runner.py",
           {"        self.notes.forget(attempt.task_id)\n": ""}, "test_progress.py"),
    Mutant("a scan is made when a task becomes due", "worker/turns.py",
           {"        if self._upcoming.pop_due(now):\n": "        if self._upcoming.pop_due(now) and False:\n"},
           "test_upcoming.py"),
    Mutant("what has become due during a look ahead is not forgotten", "worker/upcoming.py",
           {"self._due = due_by_now + [": "self._due = ["}, "test_upcoming.py"),
    Mutant("a look ahead that reads all it may is soon followed by another", "worker/upcoming.py",
           {"        self._next_look = min(self._next_look, looked + found.known_for)\n": ""}, "test_upcoming.py"),
    Mutant("a hint is sent on once", "worker/rerouting.py",
           {" if one not in self._sent": ""}, "test_rerouting.py"),
    Mutant("renotify", "cleaner/cleaner.py", {"            self.upkeep.renotify,\n": ""}, "test_cleaner.py"),
    Mutant("a claim of a worker that registers meanwhile is none without a worker", "lifecycle/cleaning.py",
           {"if is_uuid(low) and not fetch(alias, statements.HAS_WORKER, worker=as_uuid(low)):":
            "if is_uuid(low):"}, "test_cleaner_load.py"),
    Mutant("an expired or old row is removed behind the last one", "cleaner/removal.py",
           {"        self._since = removed.until or since\n": "        self._since = None\n"},
           "test_cleaner_load.py"),
    Mutant("names that nobody declares are not renotified", "cleaner/renotifier.py",
           {"if one.untold and _is_in(one.task_name, names)": "if one.untold"}, "test_cleaner_load.py"),
    Mutant("a pass looks at the workers in between", "cleaner/passes.py",
           {"            if self._clock() >= end:\n                break\n": ""}, "test_cleaner_load.py"),
    Mutant("a pass that failed in part is no whole one", "cleaner/cleaner.py",
           {"            self.record.failed(self.passes.error)\n            return\n":
            "            self.record.failed(self.passes.error)\n"}, "test_cleaner_row.py"),
    Mutant("a cleaner that slept counts anew", "cleaner/failure_detector.py",
           {"if slept or session is not self._links[0]:": "if session is not self._links[0]:"},
           "test_cleaner.py"),
    Mutant("a cleaner with a new session counts anew", "cleaner/failure_detector.py",
           {"if slept or session is not self._links[0]:": "if slept:"}, "test_cleaner.py"),
    Mutant("a last will alone is not enough", "cleaner/failure_detector.py",
           {"not is_there and self._has_second_signal(worker, signal, silence)": "not is_there"},
           "test_two_signals.py"),
    Mutant("an ended session alone is not enough", "cleaner/failure_detector.py",
           {"if worker.suspected:": "if worker.host:"},
           "test_two_signals.py"),
    Mutant("second grace after both signals", "cleaner/suspicion.py",
           {"now - self.gone >= self.grace": "True"}, "test_two_signals.py"),
    Mutant("a beat ends the second grace", "cleaner/failure_detector.py",
           {"            or known.beat != worker.beat\n": ""},
           "test_two_signals.py"),
    Mutant("seen to beat since the cleaner's links are there", "cleaner/failure_detector.py",
           {" or worker.beat <= self._first_beats.get(worker.id, -1)": ""}, "test_two_signals.py"),
    Mutant("a cleaner without its link to RabbitMQ takes no last will for a signal", "cleaner/failure_detector.py",
           {"if signal is FirstSignal.WILL and not self._links[1]:": "if False:"}, "test_two_signals.py"),
    Mutant("a cleaner with a new link counts anew", "cleaner/failure_detector.py",
           {"if slept or (session, unbroken) != self._links:": "if slept:"}, "test_two_signals.py"),
    Mutant("a process that is seen is believed", "cleaner/failure_detector.py",
           {"not is_there and self._has": "self._has"}, "test_two_signals.py"),
    Mutant("a process that is seen is believed without a broker, too", "cleaner/failure_detector.py",
           {"not is_there and self._has": "self._has"}, "test_rescue_without_broker.py", BOTH),
    Mutant("where there is a broker its word is waited for", "cleaner/failure_detector.py",
           {"has_broker or silence": "silence"}, "test_rescue_without_broker.py"),
    Mutant("a number that is used again is another process", "lifecycle/processes.py",
           {" and _began(pid) in (began, \"\")": ""}, "test_rescue_without_broker.py"),
    Mutant("a namespace has numbers of its own", "lifecycle/processes.py",
           {"if where != here:": "if False:"}, "test_rescue_without_broker.py"),
    Mutant("silence elsewhere takes half a lease", "cleaner/failure_detector.py",
           {"max(self._beats(3), worker.lease / 2)": "self._beats(3)"}, "test_rescue_without_broker.py"),
    Mutant("all sessions of a silent worker are gone", "cleaner/failure_detector.py",
           {"are_gone(self.alias, worker.sessions)": "are_gone(self.alias, worker.sessions[:1])"},
           "test_rescue_without_broker.py", BOTH),
    Mutant("the server takes new sessions", "cleaner/failure_detector.py",
           {" and sessions.can_connect(self.alias)": ""}, "test_rescue_without_broker.py", BOTH),
    Mutant("several that are cut off at once have their leases", "cleaner/failure_detector.py",
           {"if signal is FirstSignal.SILENCE and self._are_many_cut_off():": "if False:"},
           "test_rescue_without_broker.py"),
    Mutant("a time without looks does not count", "cleaner/failure_detector.py",
           {"            or now - known.looked_at > max(GAP_SECONDS, self._beats(2))\n": ""},
           "test_rescue_without_broker.py"),
    Mutant("another server knows nothing of the first one's sessions", "lifecycle/sessions.py",
           {" or any(one.server != ours.server for one in told)": ""}, "test_rescue_without_broker.py"),
    Mutant("another server of MariaDB knows nothing of them, either", "lifecycle/sessions.py",
           {"one.server != ours.server or distance": "distance"}, "test_rescue_without_broker.py", ("MARIADB",)),
    Mutant("a server that was started since knows nothing of them", "lifecycle/sessions.py",
           {" or distance > CLOCK_TOLERANCE_SECONDS": ""}, "test_rescue_without_broker.py", ("MARIADB",)),
    Mutant("a session that a role may not see is not gone", "lifecycle/sessions.py",
           {"if is_hidden or any": "if any"}, "test_rescue_without_broker.py"),
    Mutant("a will of another number is void", "lifecycle/statements.py",
           {"AND will = %(will)s AND NOT lost": "AND NOT lost"}, "test_two_signals.py"),
    Mutant("a beat under a new will clears the suspicion", "lifecycle/statements.py",
           {"suspected_at = CASE WHEN will = %(will)s THEN suspected_at END, ": ""},
           "test_two_signals.py"),
    Mutant("a lost worker's frozen sessions are ended", "cleaner/cleaner.py",
           {"sessions.end(self.alias, worker.sessions)": "pass"}, "test_two_signals.py"),
    Mutant("what was compensated is not revived", "lifecycle/operators.py",
           {"lock=statements.LOCK_REVIVABLE": "lock=statements.LOCK_IN_STATE"}, "test_hooks.py"),
    Mutant("nor what was compensated in the end", "lifecycle/statements.py",
           {"AND NOT (on_crash = 'retry+undo' AND crashes >= max_crashes)": ""}, "test_hooks.py"),
    Mutant("a failure after a crash may be revived", "lifecycle/statements.py",
           {"'retry+undo' AND crashes >= max_crashes": "'retry+undo' AND crashes > 0"}, "test_hooks.py"),
    Mutant("it runs again before it is compensated", "lifecycle/cleaning.py",
           {"again = policy.retries and crashes": "again = policy is OnCrash.RETRY and crashes"}, "test_hooks.py"),
    Mutant("and is compensated in the end", "models.py",
           {"return self in (OnCrash.COMPENSATE, OnCrash.RETRY_THEN_COMPENSATE)":
            "return self is OnCrash.COMPENSATE"}, "test_hooks.py"),
    Mutant("what expired does not start", "lifecycle/statements.py",
           {"AND (expires_at IS NULL OR expires_at > {now})": ""}, "test_limits.py"),
    Mutant("a time-out does not hit what comes after", "worker/limits.py",
           {" and not self._over:": ":"}, "test_limits.py"),
    Mutant("outcomes that fail together are fewer next time", "worker/outcome_buffer.py",
           {"            self.most = len(batch) // 2\n": ""}, "test_big_outcomes.py"),
    Mutant("a turn writes a bounded number of bytes", "worker/outcome_buffer.py",
           {" or size > BATCH_BYTES": ""}, "test_big_outcomes.py"),
    Mutant("what is too big is dead with the reason", "worker/outcome_buffer.py",
           {"if too_much and one.arrow is not Arrow.BURY:": "if False:"}, "test_big_outcomes.py"),
    Mutant("what cannot be written even as dead is put aside", "worker/outcome_buffer.py",
           {"if too_much and one.arrow is not Arrow.BURY:": "if too_much:"}, "test_big_outcomes.py"),
    Mutant("a lock is no reason to bury", "worker/outcome_buffer.py",
           {"if too_much and one.arrow is not Arrow.BURY:": "if one.arrow is not Arrow.BURY:"},
           "test_big_outcomes.py"),
    Mutant("no outcome is blamed while the database is away", "worker/turn_writer.py",
           {"return self.registration.beat_alone() and self":
            "self.registration.beat_alone()\n        return self"},
           "test_big_outcomes.py"),
    Mutant("a bad outcome stops no other", "worker/turn_writer.py",
           {"            self.buffer.one_by_one = True\n": "            pass\n"}, "test_worker.py"),
    Mutant("no loop waits for the log", "signals.py",
           {"queue = None if self.in_place else self.queue": "queue = None"}, "test_log_isolation.py"),
    Mutant("logging that raises ends nothing", "signals.py",
           {"except Exception as error:": "except ZeroDivisionError as error:"},
           "test_log_isolation.py"),
    Mutant("a receiver that leaves Python ends nothing", "event_queue.py",
           {"suppress(BaseException):  # such as": "suppress(Exception):  # such as"},
           "test_log_isolation.py"),
    Mutant("the queue of events is bounded", "event_queue.py",
           {"if waiting >= (MAX_EVENTS if": "if waiting < 0 * (MAX_EVENTS if"}, "test_log_isolation.py"),
    Mutant("what was let go ends in a moment", "management/commands/runworkers.py",
           {", seconds=LAST_LINES_SECONDS": ""}, "test_orderly_ends.py"),
    Mutant("a thread that a task has left keeps no worker", "management/commands/runworkers.py",
           {"            end_soon(0)\n": "            pass\n"}, "test_left_threads.py"),
    Mutant("a log that hangs is not waited for", "management/console.py",
           {"if own_process and events is not None and events.is_stuck:": "if False:"}, "test_log_isolation.py"),
    Mutant("an error that waits holds no variable", "tracebacks.py",
           {"        frame.clear()\n": "        pass\n"}, "test_log_texts.py"),
    Mutant("a URL that may hide a password is refused", "conf.py",
           {' and "@" not in after_host': ""}, "test_log_texts.py"),
    Mutant("caches outlive an attempt", "worker/runner.py",
           {"        share_caches()\n": ""}, "test_sessions_of_slots.py"),
    Mutant("no age of a connection ends a slot", "worker/connections.py",
           {"min(next_one - now, LONGEST_REST_SECONDS)": "next_one - now"}, "test_sessions_of_slots.py"),
    Mutant("each attempt has a context of its own", "worker/runner.py",
           {"contextvars.copy_context().run(self._run_alone, attempt, limit)":
            "self._run_alone(attempt, limit)"}, "test_isolation.py"),
    Mutant("an error after the COMMIT is no failure", "worker/runner.py",
           {"if ended is None or not committed:": "if True:"},
           "test_isolation.py"),
    Mutant("a session that a task has changed is closed", "worker/connections.py",
           {"        _thread.touched.add(connection.alias)\n        if": "        pass\n        if"},
           "test_sessions_of_slots.py"),
    Mutant("a failed attempt leaves no session", "worker/connections.py",
           {"(failed or _is_bent(connection))": "_is_bent(connection)"},
           "test_sessions_of_slots.py"),
    Mutant("a transaction begun by hand is not the next task's", "worker/connections.py",
           {"return bool(raw.pgconn.transaction_status)": "return False and bool(raw)"},
           "test_sessions_of_slots.py"),
    Mutant("the loop leaves the pool to tasks", "lifecycle/sessions.py",
           {'if options.get("pool") and not wrapper.in_atomic_block:': "if False:"},
           "test_sessions_of_slots.py"),
    Mutant("a worker closes its session after a failed turn", "worker/turn_writer.py",
           {"if not (isinstance(error, _OF_A_ROW) or is_repeatable(error)):\n            connections":
            "if False:\n            connections"}, "test_failover.py"),
    Mutant("a cleaner closes its session after a failed turn", "cleaner/cleaner.py",
           {"if not (is_repeatable(error) or took_too_long(error)):": "if False:"}, "test_failover.py"),
    Mutant("a cleaner does not skip rows that it could not write", "cleaner/rescue.py",
           {"if isinstance(error, DatabaseError) and not sessions.can_write(self._alias):": "if False:"},
           "test_failover.py"),
    Mutant("a cleaner that recovers for long looks at the others", "cleaner/rescue.py",
           {"if one not in self._tried][:CLAIMS_PER_WORKER]": "if one not in self._tried]",
            "CLAIMS_PER_WORKER + len(self._tried))": "cleaning.MAX_HELD_CLAIMS)"}, "test_cleaner_endures.py"),
    Mutant("cleaning lasts for a moment", "cleaner/rescue.py",
           {"                    if self._clock() >= end:\n                        return False\n": ""},
           "test_cleaner_endures.py"),
    Mutant("each lost worker has its turn", "cleaner/rescue.py",
           {"        workers.sort(key=lambda one: (one.id <= self._last, one.id))\n": ""},
           "test_cleaner_endures.py"),
    Mutant("a cleaner that recovers for long does not rest", "cleaner/cleaner.py",
           {" or self.rescue.is_unfinished": ""}, "test_cleaner_endures.py"),
    Mutant("a cleaner cleans without a row of its own", "cleaner/record.py",
           {"if not sessions.can_write(self._alias):": "if True:"}, "test_cleaner_endures.py"),
    Mutant("claims that nobody can move are not tried for ever", "cleaner/rescue.py",
           {"if one not in self._tried][:CLAIMS_PER_WORKER]": "][:CLAIMS_PER_WORKER]"}, "test_cleaner_endures.py"),
    Mutant("an error of another service is none of a database's", "lifecycle/sessions.py",
           {"raise OperationalError(text) from None": "raise OperationalError(text) from error"},
           "test_failover.py"),
    Mutant("wrong settings are not waited for", "lifecycle/sessions.py",
           {"ImproperlyConfigured, TypeError)": ")"}, "test_failover.py"),
    Mutant("a row that cannot be moved is emission of once", "cleaner/rescue.py",
           {"if task_id not in self._skipped:": "if True:"}, "test_cleaner_endures.py"),
    Mutant("a row that cannot expire stops no other", "lifecycle/cleaning.py",
           {"            yield from _finish_expired(alias, [one], outcome, keep=keep)\n":
            "            yield one, error\n"},
           "test_cleaner_endures.py"),
    Mutant("a transaction begins as its session was told", "lifecycle/transactions.py",
           {"return all(mode is None for mode in modes)": "return True"}, "test_committing_along.py"),
    Mutant("the answer of a statement that began is its own", "lifecycle/transactions.py",
           {'    context["cursor"].nextset()': "    pass"}, "test_committing_along.py"),
    Mutant("who begins leaves the session as it was", "lifecycle/transactions.py",
           {"        session._autocommit = False\n": "        pass\n"}, "test_committing_along.py"),
    Mutant("nobody's wrapper is left out of the transaction", "lifecycle/transactions.py",
           {"if many or is_wrapped or": "if many or"}, "test_committing_along.py"),
    Mutant("no cursor with a name begins", "lifecycle/transactions.py",
           {'type(getattr(cursor, "cursor", None)) is Cursor': "True"}, "test_committing_along.py"),
    Mutant("a cursor of a project is in the transaction", "lifecycle/transactions.py",
           {'type(getattr(cursor, "cursor", None)) is Cursor':
            'isinstance(getattr(cursor, "cursor", None), Cursor)'}, "test_committing_along.py"),
    Mutant("after a first statement that cannot be read the block does nothing", "lifecycle/transactions.py",
           {"            connection.needs_rollback = True\n": "            pass\n"}, "test_committing_along.py"),
    Mutant("nothing is committed after an error that the task has swallowed", "lifecycle/transactions.py",
           {"    connection.validate_no_broken_transaction()\n": ""}, "test_committing_along.py"),
    Mutant("database hints: a deaf listener is noticed", "hints/listener.py",
           {"                raise Deaf\n": "                return\n"}, "test_database_hints.py"),
    Mutant("database hints: a worker is told what it serves", "hints/channel.py",
           {"hexdigest()[:DIGITS]": "hexdigest()[:0]"}, "test_database_hints.py"),
    Mutant("database hints: what was sent before is scanned for", "hints/listener.py",
           {"            self._delivery.tell_of_more()  # whatever was sent before\n": ""},
           "test_database_hints.py"),
    Mutant("database hints: a full worker remembers that it was told", "hints/delivery.py",
           {"        if not self.is_on:\n            self._has_missed = True\n": ""}, "test_database_hints.py"),
    Mutant("database hints: a forked child has a sender of its own", "hint_sender.py",
           {"        self._senders, self._lock = {}, ": "        self._lock = "},
           "test_database_hints.py"),
    Mutant("hints: a thread that is not the sender's ends", "hint_sender.py",
           {"if self._thread is not ours:": "if False:"}, "test_database_hints.py"),
    Mutant("database hints: a sender keeps its session", "hints/sender.py",
           {"or (is_idle and self._unanswered": "or (self._unanswered"}, "test_database_hints.py"),
    Mutant("database hints: a session that has ended while idle is no failure", "hints/sender.py",
           {"return channel.has_ended(self._session.connection)": "return False"}, "test_database_hints.py"),
    Mutant("database hints: nobody waits for ever", "hints/channel.py",
           {"if not selector.select(max(0.0, end - time.monotonic())):": "if not selector.select(300):"},
           "test_database_hints.py"),
    Mutant("hints: a thread that has died is started again", "hint_sender.py",
           {"                    self._thread, self._woken = None, False\n": "                    pass\n"},
           "test_database_hints.py"),
    Mutant("hints: a time limit ends the task that sends them", "commit_hints.py",
           {"        except INTERRUPTIONS:": "        except ZeroDivisionError:"}, "test_database_hints.py"),
    Mutant("hints: a queue that is refused stops no other", "broker/hint_queues.py",
           {"except ChannelClosedByBroker as error:": "except ZeroDivisionError as error:"},
           "test_sending_hints.py"),
    Mutant("hints: a queue that is refused makes no worker deaf", "broker/hint_queues.py",
           {"except ChannelClosedByBroker as error:": "except ZeroDivisionError as error:"}, "test_broker.py"),
    Mutant("database hints: the buffer is bounded", "hint_sender.py",
           {"if len(ids) > room:": "if False:"}, "test_database_hints.py"),
    Mutant("hints: few tasks hardly wait", "resting.py", {"** 4": "** 0"}, "test_resting.py"),
    Mutant("hints: who sends many rests longer", "resting.py",
           {" * max(1.0, ids * rest / since_last)": ""}, "test_resting.py"),
    Mutant("hints: the publisher rests", "broker/publisher.py",
           {"if is_resting or not self._send_now": "if not self._send_now"}, "test_sending_hints.py"),
    Mutant("hints: one transaction tells all its queues at once", "broker/publisher.py",
           {"                sent += len(ids)\n": "                sent, is_resting = 1, True\n"},
           "test_sending_hints.py"),
    Mutant("database hints: who has committed sends", "hints/sender.py",
           {"            self._send_at_once()\n": "            pass\n"}, "test_database_hints.py"),
    Mutant("database hints: what was not answered is sent again", "hints/sender.py",
           {"            self._waiting[packed.queue].extendleft(reversed(packed.ids))\n": ""},
           "test_database_hints.py"),
    Mutant("database hints: a channel belongs to one table", "hints/channel.py",
           {"COALESCE(to_regclass('txtasks_task')::oid, 0)": "0"}, "test_database_hints.py"),
    Mutant("database hints: none where tests run", "conf.py",
           {"and not _in_test_run()": ""}, "test_database_hints.py"),
    Mutant("paused: no scan in one statement", "lifecycle/engines/postgresql.py",
           {'f"asked.queue NOT IN ({statements.PAUSED_QUEUES})"': '"TRUE"'}, "test_paused_queues.py"),
    Mutant("paused: no look-up by id", "lifecycle/statements.py",
           {"       AND queue_name NOT IN ({PAUSED_QUEUES}) {{skip_locked}}": " {{skip_locked}}"},
           "test_paused_queues.py", BOTH),
    Mutant("paused: no turn in two blocks", "lifecycle/engines/mariadb.py",
           {'f"%(queue)s IN ({statements.PAUSED_QUEUES})"': '"FALSE"'}, "test_engines.py", ("MARIADB",)),
    Mutant("paused: no scan of several statements", "lifecycle/engines/portable.py",
           {"    paused = paused_queues(subscription.alias)\n": "    paused = set()\n"},
           "test_paused_queues.py", ("MARIADB",)),
    Mutant("paused: no sweep", "worker/sweep.py",
           {"if bucket.queue_name in self._paused:": "if False:"}, "test_paused_queues.py"),
    Mutant("paused: no news of it", "lifecycle/heads.py",
           {"if queue in paused:": "if False:"}, "test_paused_queues.py"),
    Mutant("paused: nobody is told again", "cleaner/renotifier.py",
           {" and queue not in paused:": ":"}, "test_paused_queues.py"),
    Mutant("cancel: no other attempt starts", "lifecycle/statements.py",
           {"""           expires_at = CASE WHEN expires_at <= {now} THEN expires_at ELSE {now} END
     WHERE id {in_ids} AND""": """           notified_at = notified_at
     WHERE id {in_ids} AND"""}, "test_cancelling.py"),
    Mutant("cancel: what a worker has is not removed", "lifecycle/statements.py",
           {"WHERE id {in_ids} ORDER BY id {lock}": "WHERE id {in_ids} ORDER BY id"}, "test_cancelling.py"),
    Mutant("cancel: a revived task is asked no more", "lifecycle/statements.py",
           {"           cancel_asked_at = NULL, notified_at": "           notified_at"}, "test_cancelling.py"),
    Mutant("lanes: no turn of one statement takes one", "lifecycle/engines/postgresql.py",
           {" AND merge_key IS NULL AND lane = '') AS found": " AND merge_key IS NULL) AS found",
            " and not one.lane]": "]"}, "test_lanes.py"),
    Mutant("lanes: no turn of two blocks takes one", "lifecycle/engines/mariadb.py",
           {" and one.merge_key is None and not one.lane": " and one.merge_key is None"},
           "test_engines.py", ("MARIADB",)),
    Mutant("lanes: no scan walks them", "lifecycle/statements.py",
           {"AND status = 'pending' AND lane = '' AND queue_name": "AND status = 'pending' AND queue_name",
            """CHOOSE_DUE.replace("lane = '' AND queue_name", "lane""":
            """CHOOSE_DUE.replace("AND queue_name", "AND lane"""},
           "test_lanes.py", BOTH),
    Mutant("lanes: what is claimed counts", "lifecycle/lanes.py",
           {"rule.at_most - claimed": "rule.at_most"}, "test_lanes.py", BOTH),
    Mutant("lanes: whoever counts has locked the lane", "lifecycle/statements.py",
           {"FROM txtasks_lane WHERE name {in_names} {skip_locked}": "FROM txtasks_lane WHERE name {in_names}"},
           "test_lanes.py", BOTH),
    Mutant("lanes: a count sees what was committed before it", "lifecycle/transactions.py",
           {'if read_committed and connections[alias].vendor != "sqlite":': "if False:"},
           "test_lanes.py", BOTH),
    Mutant("lanes: a clock set back gives nothing", "lifecycle/lanes.py",
           {"max(0.0, sound(row.idle, 0.0))": "abs(sound(row.idle, 0.0))"}, "test_lanes.py"),
    Mutant("lanes: what is saved up has a limit", "lifecycle/lanes.py",
           {"return min(most, sound(row.tokens": "return max(0.0, sound(row.tokens"}, "test_lanes.py"),
    Mutant("lanes: who was idle does not catch up", "lifecycle/lanes.py",
           {"self.start = self.tag = max(self.own, served)": "self.start = self.tag = self.own"},
           "test_lanes.py"),
    Mutant("lanes: a hold holds", "lifecycle/lanes.py",
           {"if held := held_for(row):": "if (held := held_for(row)) < 0:"}, "test_lanes.py"),
    Mutant("lanes: a pause pauses", "lifecycle/lanes.py", {"if row.is_paused:": "if False:"}, "test_lanes.py"),
    Mutant("lanes: one of its tasks has ended here", "worker/turns.py",
           {"self.lanes.ended(self._workload.ended_in)": "pass"}, "test_lanes.py"),
    Mutant("lanes: by turns with the others", "worker/schedule.py",
           {"may_serve and not (self._served_lanes and (scan or look_up))": "may_serve"}, "test_lanes.py"),
    Mutant("lanes: the order does not pass one that was not served", "lifecycle/lanes.py",
           {"return max(before, min(left))": "return max([before, *[one.tag for one in looks.values()]])"},
           "test_lanes.py"),
    Mutant("lanes: a lane without its row gets one", "worker/lane_book.py",
           {"                self._tags.pop(name, None)\n": ""}, "test_lanes.py"),
    Mutant("lanes: slots are left to them", "worker/turns.py",
           {"if capacity.prefetch and self.lanes.next <= time.monotonic():": "if False:"}, "test_lanes.py"),
    Mutant("lanes: no key is asked for without a pause", "lifecycle/lanes.py",
           {"        wait = max(wait, KEY_SECONDS)\n": "        pass\n"}, "test_lanes.py"),
    Mutant("once: a key that is taken stays taken", "lifecycle/statements.py",
           {"excluded.until WHERE txtasks_once.until <= {now}": "excluded.until"}, "test_once.py"),
    Mutant("once: keys are taken in one order", "lifecycle/once.py",
           {"digests = sorted(first)": "digests = list(first)"}, "test_once.py", ("MARIADB",)),
    Mutant("once: who is not the first writes nothing", "enqueueing.py",
           {"        if winner != task.task_id:\n": "        if False:\n"}, "test_once.py"),
    Mutant("schedules: two cleaners do not write one tick", "lifecycle/statements.py",
           {"next_at LIMIT %(limit)s {{skip_locked}}": "next_at LIMIT %(limit)s"}, "test_schedules.py"),
    Mutant("schedules: nothing is written ahead of one that waits", "lifecycle/schedules.py",
           {"if waits and next_at > now:": "if False:"}, "test_schedules.py"),
    Mutant("schedules: ticks pass while one waits for long", "lifecycle/schedules.py",
           {"if waits and since is not None and now - since > ON_TIME:": "if False:"}, "test_schedules.py"),
    Mutant("schedules: waiting counts from the first one", "lifecycle/schedules.py",
           {"moment_of(row.waiting_since) if waits and row.waiting_since else last_at": "last_at"},
           "test_schedules.py"),
    Mutant("schedules: what has begun keeps none waiting", "lifecycle/statements.py",
           {"TRIM(status) = 'pending' AND attempt = 0\"": "TRIM(status) = 'pending'\""}, "test_schedules.py"),
    Mutant("schedules: a bad row goes off alone", "lifecycle/schedules.py",
           {"except InvalidSchedule as error:\n                written":
            "except ZeroDivisionError as error:\n                written"},
           "test_schedules.py"),
    Mutant("schedules: what only this code cannot write stays on", "lifecycle/schedules.py",
           {"written.skipped.append((row.name, str(error)))\n            except FOREIGN":
            "written.broken.append((row.name, str(error)))\n            except FOREIGN"}, "test_schedules.py"),
    Mutant("schedules: names that this code does not declare", "lifecycle/statements.py",
           {"enabled AND {name} {in_names} AND queue_name": "enabled AND queue_name"}, "test_schedules.py"),
    Mutant("schedules: a change cancels what was written ahead", "lifecycle/schedule_changes.py",
           {"    is_cancelled = _cancel_ahead(alias, row, keep)\n": "    is_cancelled = False\n"},
           "test_schedules.py"),
    Mutant("schedules: a tick that a worker takes is not written again", "lifecycle/schedule_changes.py",
           {"        now = max(now, _aware(after))\n": "        pass\n"}, "test_schedules.py"),
    Mutant("schedules: people's words survive", "lifecycle/schedule_changes.py",
           {"if differs and row.edited:": "if False:"}, "test_schedules.py"),
    Mutant("schedules: an older release takes nothing back", "lifecycle/schedule_changes.py",
           {"if release and newest > release:": "if False:"}, "test_schedules.py"),
    Mutant("schedules: one cleaner tells of what is not ready", "lifecycle/statements.py",
           {"AND (told_at IS NULL OR told_at < %(tick)s)": ""}, "test_schedules.py"),
    Mutant("schedules: a tick comes after the one before it", "schedule_rules.py",
           {"        if tick > last:": "        if True:"}, "test_schedule_rules.py"),
    Mutant("steps: the fence", "lifecycle/steps.py",
           {"    if not kept:\n": "    if False:\n"}, "test_steps.py", BOTH),
    Mutant("steps: nobody takes the row before their commit", "lifecycle/statements.py",
           {"attempt, {{now}} FROM txtasks_task {_STILL_HELD} {{share}}":
            "attempt, {{now}} FROM txtasks_task {_STILL_HELD}"},
           "test_steps.py", BOTH),
    Mutant("steps: one transaction each", "steps.py",
           {"transaction.atomic(using=self._alias, durable=True)": "ExitStack()"}, "test_steps.py"),
    Mutant("steps: not in an open block", "steps.py",
           {"self._alias, durable=True": "self._alias"}, "test_steps.py"),
    Mutant("steps: nor with autocommit off", "steps.py",
           {"if not connection.in_atomic_block and not": "if False and not"}, "test_steps.py"),
    Mutant("steps: a name once in an attempt", "steps.py",
           {"if name in self._begun:": "if False:"}, "test_steps.py"),
    Mutant("steps: what is done is not done again", "steps.py",
           {"if name in self._done:": "if False:"}, "test_steps.py"),
    Mutant("steps: from JSON the first time, too", "steps.py",
           {"            value = text_of_value(name, function(*args, **kwargs))\n":
            "            got = function(*args, **kwargs)\n            value = text_of_value(name, got)\n",
            "            steps.keep(self._alias, self._attempt, name, value)\n        return json.loads(value)":
            "            steps.keep(self._alias, self._attempt, name, value)\n        return got"},
           "test_steps.py"),
    Mutant("steps: of a dead task are kept", "lifecycle/steps.py",
           {"if one not in known]": "]"}, "test_steps.py"),
    Mutant("steps: go with the finished task", "lifecycle/cleaning.py",
           {"        execute(alias, statements.FORGET_STEPS, ids=ids)\n": ""}, "test_steps.py"),
    Mutant("waits: a value wakes its task", "lifecycle/waits.py",
           {"                execute(alias, statements.WAKE, id=task_id)\n": ""}, "test_waits.py"),
    Mutant("waits: a value that came in between", "lifecycle/statements.py",
           {"CASE WHEN ended_at IS NULL THEN COALESCE": "CASE WHEN TRUE THEN COALESCE"}, "test_waits.py"),
    Mutant("waits: the first value stays", "lifecycle/statements.py",
           {"ended_at = {{now}} {_THIS_WAIT} AND ended_at IS NULL\n": "ended_at = {{now}} {_THIS_WAIT}\n"},
           "test_waits.py"),
    Mutant("waits: the first time said counts", "steps.py",
           {"if not (wait.ended or wait.is_over):": "if False:"}, "test_waits.py"),
    Mutant("waits: given up for good", "steps.py",
           {"if wait.is_over and not wait.ended:": "if False:"}, "test_waits.py"),
    Mutant("waits: who has lost his claim writes none", "lifecycle/statements.py",
           {"<until> FROM txtasks_task {_STILL_HELD} {{share}} {{or_leave}}":
            "<until> FROM txtasks_task WHERE id = %(id)s {{share}} {{or_leave}}"}, "test_waits.py", BOTH),
    Mutant("waits: who has lost his claim gets no value", "lifecycle/statements.py",
           {" AND EXISTS (SELECT 1 FROM txtasks_task {_STILL_HELD}) {{share}}": " {{share}}"},
           "test_waits.py", BOTH),
    Mutant("waits: one that stands is left as it is", "lifecycle/statements.py",
           {"<until> FROM txtasks_task {_STILL_HELD} {{share}} {{or_leave}}":
            "<until> FROM txtasks_task {_STILL_HELD} {{share}}"}, "test_waits.py"),
    Mutant("waits: who asks holds his row", "lifecycle/statements.py",
           {"<until> FROM txtasks_task {_STILL_HELD} {{share}} {{or_leave}}":
            "<until> FROM txtasks_task {_STILL_HELD} {{or_leave}}"}, "test_waits.py", BOTH),
    Mutant("waits: who gives up leaves what has ended", "lifecycle/statements.py",
           {"{_THIS_WAIT} AND ended_at IS NULL AND until <= {{now}}\"": "{_THIS_WAIT} AND until <= {{now}}\""},
           "test_waits.py"),
    Mutant("waits: who gives up does so in time", "lifecycle/statements.py",
           {"{_THIS_WAIT} AND ended_at IS NULL AND until <= {{now}}\"": "{_THIS_WAIT} AND ended_at IS NULL\""},
           "test_waits.py"),
    Mutant("waits: what has begun does not expire", "lifecycle/statements.py",
           {"expires_at = CASE WHEN cancel_asked_at IS NULL THEN NULL ELSE expires_at END":
            "expires_at = expires_at"}, "test_waits.py"),
    Mutant("waits: what was asked to stop ends", "lifecycle/statements.py",
           {"expires_at = CASE WHEN cancel_asked_at IS NULL THEN NULL ELSE expires_at END":
            "expires_at = NULL"}, "test_waits.py"),
    Mutant("waits: who brings a value has the row", "lifecycle/waits.py",
           {"fetch(alias, statements.LOCK_TO_CANCEL, ids":
            "fetch(alias, statements.LOCK_TO_CANCEL.replace('{lock}', ''), ids"}, "test_waits.py", BOTH),
    Mutant("waits: a value that comes first is kept", "lifecycle/waits.py",
           {"            return bool(counts), []":
            "            transaction.set_rollback(True, alias)\n            return bool(counts), []"},
           "test_waits.py"),
    Mutant("waits: a later value that comes first is left", "lifecycle/statements.py",
           {"%(is_sleep)s, %(value)s, {now}) {or_leave}": "%(is_sleep)s, %(value)s, {now})"}, "test_waits.py"),
    Mutant("waits: workers are told of a value", "lifecycle/waits.py",
           {"if status == Status.PENDING else []": "if False else []"}, "test_waits.py"),
    Mutant("waits: no failure", "worker/runner.py",
           {"if isinstance(error, Suspended):": "if False:"}, "test_waits.py"),
    Mutant("waits: a page asks first", "views.py",
           {'if request.method != "POST":': "if False:"}, "test_waits.py"),
    Mutant("events: only those of the settings", "events.py",
           {"if known is not None and event not in known:": "if False:"}, "test_events.py"),
    Mutant("events: one that nobody hears", "events.py",
           {"    if not found:\n": "    if False:\n"}, "test_events.py"),
    Mutant("events: a function has one task", "events.py",
           {"_subscribers.setdefault(event, {})[declaration.name] = function":
            "_subscribers.setdefault(event, {})[declaration.name + str(id(function))] = function"},
           "test_events.py"),
    Mutant("unique: no turn of one statement takes one", "lifecycle/engines/postgresql.py",
           {"AND merge_key IS NULL AND lane = '') AS found": "AND lane = '') AS found",
            "if one.merge_key is None and not one.lane]": "if not one.lane]"}, "test_unique.py"),
    Mutant("unique: no turn of two blocks takes one", "lifecycle/engines/mariadb.py",
           {" and one.merge_key is None and not": " and not"}, "test_unique.py", ("MARIADB",)),
    Mutant("unique: what has begun is not absorbed", "lifecycle/statements.py",
           {"       AND {t}attempt = 0 AND {t}failures": "       AND {t}failures"},
           "test_unique.py test_unique_machine.py", BOTH),
    Mutant("unique: what has begun absorbs nothing", "lifecycle/statements.py",
           {"CASE WHEN attempt = 0 THEN unique_key END AS merge_key": "unique_key AS merge_key"},
           "test_unique.py test_unique_machine.py"),
    Mutant("unique: what is later is not absorbed", "lifecycle/statements.py",
           {" = 'pending' AND {t}run_after <= {now}\n": " = 'pending'\n"}, "test_unique.py"),
    Mutant("unique: nor what has expired", "lifecycle/statements.py",
           {"       AND ({t}expires_at IS NULL OR {t}expires_at > {now})\n": ""}, "test_unique.py"),
    Mutant("unique: nor what outlives the winner", "lifecycle/statements.py",
           {"       AND (w.expires_at IS NULL OR t.expires_at <= w.expires_at)\n": ""}, "test_unique.py"),
    Mutant("unique: nor what has other limits", "lifecycle/statements.py",
           {" AND w.max_attempts = t.max_attempts": ""}, "test_unique.py"),
    Mutant("unique: nor what has other hooks", "lifecycle/statements.py",
           {" AND w.hooks = t.hooks\n": "\n"}, "test_unique.py"),
    Mutant("unique: a hint is a ticket for the first", "lifecycle/statements.py",
           {'+ "ORDER BY priority DESC, run_after, id LIMIT 1"': '+ "ORDER BY priority, run_after, id LIMIT 1"'},
           "test_unique.py"),
    Mutant("unique: the arguments of the newest", "lifecycle/merging.py",
           {'declaration.keep == "newest"': "False"}, "test_unique.py"),
    Mutant("unique: it starts later than what it stands for", "lifecycle/engines/portable.py",
           {"    attempts, merged = merging.absorb(subscription.alias, admission.attempts, keys)\n": "",
            "    _claim(subscription.alias, worker, attempts)\n    left":
            "    _claim(subscription.alias, worker, admission.attempts)\n"
            "    attempts, merged = merging.absorb(subscription.alias, admission.attempts, keys)\n    left"},
           "test_unique.py"),
    Mutant("unique: a locked key is left alone", "lifecycle/merging.py",
           {"            if first is not None:\n": "            first = first or one\n            if True:\n"},
           "test_unique.py"),
    Mutant("unique: whoever was merged hears of a cancel", "lifecycle/outcomes.py",
           {"    if outcome in (Outcome.CANCELLED, Outcome.EXPIRED):\n": "    if False:\n"},
           "test_unique.py"),
    Mutant("unique: a locked key keeps nobody waiting", "worker/schedule.py",
           {"            if result.keys_wait:\n": "            if False:\n"}, "test_unique.py"),
    Mutant("unique: what has finished before is not absorbed", "lifecycle/statements.py",
           {"       AND NOT EXISTS (SELECT 1 FROM txtasks_finishedtask f WHERE f.id = t.id)\n": ""},
           "test_unique.py"),
    Mutant("unique: another function is not absorbed", "lifecycle/statements.py",
           {"       AND w.task_name = t.task_name AND w.queue_name = t.queue_name\n": "",
            " AND task_name = %(task_name)s AND queue_name = %(queue_name)s {sound_id}": " {sound_id}"},
           "test_unique.py"),
    Mutant("unique: what was merged stays until its run has ended", "lifecycle/statements.py",
           {"       AND COALESCE((SELECT FALSE FROM txtasks_task t WHERE t.id = merged_into), TRUE)\n": ""},
           "test_unique.py"),
    Mutant("with_result: the result, not the event", "lifecycle/follow_ups.py",
           {'hooks[name].get("with_result", False)': "False"}, "test_hooks.py"),
    Mutant("with_result: for a success alone", "declaring.py",
           {'if option != "on_success":': "if False:"}, "test_hooks.py"),
    Mutant("batch: looked at again with the lock", "lifecycle/batches.py",
           {"        if live_member(alias, batch):\n            break": "        if False:\n            break"},
           "test_batches.py"),
    Mutant("batch: the lock", "lifecycle/statements.py",
           {"finished_at IS NULL {lock}": "finished_at IS NULL"}, "test_batches.py"),
    Mutant("batch: its end is told once", "lifecycle/statements.py",
           {"WHERE id = %(batch)s AND finished_at IS NULL {lock}": "WHERE id = %(batch)s {lock}",
            "failed = %(failed)s WHERE id = %(batch)s AND finished_at IS NULL":
            "failed = %(failed)s WHERE id = %(batch)s"}, "test_batches.py"),
    Mutant("batch: a held member is live", "lifecycle/statements.py",
           {"AND NOT (status = 'claimed') AND NOT (status = 'dead') {sound_id}":
            "AND NOT (status = 'claimed') AND status = 'pending' {sound_id}"}, "test_batches.py"),
    Mutant("batch: a claimed member is live", "lifecycle/statements.py",
           {"WHERE batch = <batch> AND status = 'claimed' {sound_id}":
            "WHERE batch = <batch> AND status = 'none' {sound_id}"}, "test_batches.py"),
    Mutant("batch: a dead member has failed", "lifecycle/statements.py",
           {"NOT (status = 'claimed') AND TRIM(status) = 'dead' LIMIT 1":
            "NOT (status = 'claimed') AND status = 'none' LIMIT 1"}, "test_batches.py"),
    Mutant("batch: a discarded one, too", "lifecycle/statements.py",
           {"\"('cancelled', 'discarded', 'expired')\"": "\"('cancelled', 'expired')\""}, "test_batches.py"),
    Mutant("batch: what failed is kept without history", "lifecycle/outcomes.py",
           {"elif outcome is not Outcome.SUCCEEDED:": "elif False:"}, "test_batches.py"),
    Mutant("batch: and not pruned before its end", "lifecycle/statements.py",
           {"outcome IN ('succeeded', 'merged')\n": "outcome IN ('succeeded', 'merged', 'cancelled')\n"},
           "test_batches.py"),
    Mutant("batch: the doors of people look", "lifecycle/outcomes.py",
           {"if status is not Status.CLAIMED:": "if False:"}, "test_batches.py"),
    Mutant("batch: recovery looks", "lifecycle/cleaning.py",
           {"if not again and attempt.batch is not None:": "if False:"}, "test_batches.py"),
    Mutant("batch: a worker looks", "worker/outcome_buffer.py",
           {"if one.attempt.batch is not None and one.arrow in _LAST:": "if False:"}, "test_batches.py"),
    Mutant("batch: a cleaner looks", "cleaner/cleaner.py", {"            self.upkeep.end_batches,\n": ""},
           "test_batches.py"),
    Mutant("batch: who adds holds his row", "lifecycle/statements.py",
           {"AND TRIM(t.status) = 'claimed' {lock}": "AND TRIM(t.status) = 'claimed'"}, "test_batches.py"),
    Mutant("batch: who adds is fenced", "lifecycle/statements.py",
           {"t.attempt = %(attempt)s AND t.worker = %(worker)s\n       AND TRIM(t.status) = 'claimed' {lock}":
            "TRIM(t.status) = 'claimed' {lock}"}, "test_batches.py"),
    Mutant("batch: nothing is added after its end", "lifecycle/batches.py", {"    if not names:": "    if False:"},
           "test_batches.py"),
    Mutant("batch: merged within it alone", "lifecycle/statements.py",
           {"AND (w.batch = t.batch OR w.batch IS NULL AND t.batch IS NULL)": ""}, "test_batches.py"),
    Mutant("batch: of one connection", "open_batches.py",
           {"if batch is not None and connection.alias != alias:": "if False:"}, "test_batches.py"),
    Mutant("batch: COPY fills it, too", "enqueueing.py",
           {"parts = {alias: _in_batch(alias, part) for": "parts = {alias: list(part) for"}, "test_batches.py"),
    Mutant("snooze: bounded", "worker/runner.py",
           {"if attempt.snoozes < most:": "if True:"}, "test_snoozing.py"),
    Mutant("database hints: a row that stays is news once", "lifecycle/heads.py",
           {" if task_id not in self._known]": "]"}, "test_looking.py", BOTH),
    Mutant("database hints: a write is told before others see it", "hints/file_watcher.py",
           {"PAUSES_SECONDS[min(self._silences, len(PAUSES_SECONDS) - 1)]": "PAUSES_SECONDS[-1]"},
           "test_looking.py", ("SQLITE",)),
    Mutant("database hints: a silent kernel is noticed", "hints/file_watcher.py",
           {"self._hears = self._events.wait(0)  #": "self._hears = True  #"}, "test_looking.py", ("SQLITE",)),
    Mutant("database hints: the kernel tells of writes", "hints/file_events.py",
           {"_IN_MODIFY = 2": "_IN_MODIFY = 0"}, "test_looking.py", ("SQLITE",)),
    Mutant("an outage becomes an error", "outage.py",
           {">= ERROR_EVERY_SECONDS": ">= 1e9"}, "test_turn_failures.py"),
    Mutant("an outage is not over with the first success", "outage.py",
           {" or time.monotonic() - self._failed_at < OVER_AFTER_SECONDS": ""}, "test_turn_failures.py"),
    Mutant("database hints: glances end", "worker/glances.py",
           {" if now < self._until else NEVER": ""}, "test_looking.py", ("MARIADB",)),
    Mutant("database hints: no glances without the setting", "worker/turns.py",
           {"may = self._may_glance and not": "may = not"}, "test_looking.py", ("MARIADB",)),
]  # fmt: skip


def mutated(text: str, mutant: Mutant) -> str:
    """Return a file without the guard.

    Raises:
        SystemExit: the code has changed, so this list has to follow it.
    """
    for old, new in mutant.changes.items():
        if text.count(old) != 1:
            sys.exit(
                f"{mutant.guard}: found {text.count(old)} times in {mutant.file}, not once: {old!r}"
            )
        text = text.replace(old, new)
    ast.parse(text)  # a file that cannot even be imported would fail every test and prove nothing
    return text


def files(mutant: Mutant) -> list[str]:
    """Return the files of tests that should notice, below the tree."""
    return [f"tests/{name}" for name in mutant.tests.split()]


def run_tests(
    tree: Path, tests: list[str], database: str, patience: float = PATIENCE
) -> tuple[int | None, str]:
    """Return pytest's status, None if it took too long, and what it printed."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    sqlite = f"sqlite:///{tree}.sqlite3?timeout=1"
    url = sqlite if database == "SQLITE" else os.environ[f"TXTASKS_TEST_{database}_URL"]
    path = os.pathsep.join(filter(None, [str(tree), os.environ.get("PYTHONPATH")]))
    env = {**os.environ, "TXTASKS_DATABASE_URL": url, "PYTHONPATH": path}
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=patience,
        )
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stdout + done.stderr


def verdict(tree: Path, mutant: Mutant, database: str) -> str:
    """Return the id of the test that noticed; empty = the guard can go and nobody does."""
    file = tree / "django_txtasks" / mutant.file
    original = file.read_text()
    file.write_text(mutated(original, mutant))
    try:
        status, output = run_tests(tree, files(mutant), database)
    finally:
        file.write_text(original)
    if status not in (PASSED, FAILED, None):
        sys.exit(f"{mutant.guard}: pytest could not do its work ({status}):\n{output}")
    if status is None:
        return "(a test that never ended)"
    noticed = re.search(r"^(?:FAILED|ERROR) tests/(\S+)", output, re.MULTILINE)
    return noticed[1] if status == FAILED and noticed else ""


def main(words: list[str]) -> int:
    """Try them all; return 1 if one survives."""
    mutants = [one for one in MUTANTS if all(word in one.guard for word in words)]
    survivors = 0
    with tempfile.TemporaryDirectory() as directory:
        tree = Path(directory) / "tree"
        shutil.copytree(ROOT, tree, ignore=LEFT_OUT)
        for mutant in mutants:
            mutated((tree / "django_txtasks" / mutant.file).read_text(), mutant)
        for database in sorted({name for one in mutants for name in one.databases}):
            tests = {file for one in mutants if database in one.databases for file in files(one)}
            status, output = run_tests(tree, sorted(tests), database, PATIENCE * len(tests))
            if status != PASSED:
                sys.exit(f"The tests fail on {database} without any mutation:\n{output}")
        for mutant in mutants:
            for database in mutant.databases:
                start = time.monotonic()
                noticed = verdict(tree, mutant, database)
                survivors += not noticed
                seconds = time.monotonic() - start
                print(
                    f"{mutant.guard:45} {database:8} {noticed or 'SURVIVED':100} {seconds:5.1f} s",
                    flush=True,
                )
    print(f"{survivors} survived")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
