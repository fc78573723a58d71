"""The guards of ``features/results``, each with the tests that notice its loss."""

from mutants import BOTH, Mutant

MUTANTS = [
    Mutant("the result of a merged request is that of its run", "features/results/task_states.py",
           {"        elif task_id in merged:\n": "        elif False:\n"},
           "test_waiting.py::test_a_request_that_was_merged_gets_the_result_of_the_run"),
    Mutant("a look that is stuck keeps no process from its end", "features/results/polling.py",
           {'name="txtasks-results", daemon=True': 'name="txtasks-results", daemon=False'},
           "test_waiting_sessions.py::test_a_connection_that_was_dropped_without_a_word_keeps_no_process_from_"
           "its_end"),
    Mutant("a task does not wait for another one", "features/results/polling.py",
           {"    if current.get() is not None:\n": "    if False:\n"},
           "test_waiting.py::test_in_a_task_it_would_keep_a_slot"),
    Mutant("waiting: a session that was cut is replaced", "features/results/polling.py",
           {"            sessions.close(connections[self.alias])\n": ""},
           "test_waiting_sessions.py::test_who_waits_goes_on_when_sessions_are_cut", BOTH),
    Mutant("waiting: one look that failed ends no wait", "features/results/polling.py",
           {"except (OperationalError, InterfaceError) as error:": "except ZeroDivisionError as error:"},
           "test_waiting_sessions.py::test_who_waits_goes_on_when_sessions_are_cut", BOTH),
    Mutant("waiting: the session of a lookout ends with it", "features/results/polling.py",
           {"        close_connections()\n": ""},
           "test_waiting_sessions.py::test_no_session_is_left_where_nobody_waits"),
    Mutant("waiting: a look has a time limit", "features/results/polling.py",
           {"asyncio.wait_for(answer, ANSWER_SECONDS)": "answer"},
           "test_waiting_sessions.py::test_a_connection_that_was_dropped_without_a_word_keeps_nobody_waiting"),
    Mutant("who waits for a result in its transaction hears of it", "features/results/polling.py",
           {"    if connection.in_atomic_block or not": "    if False and not"}, "test_waiting.py"),
    Mutant("rows that were merged into each other are looked at once", "features/results/task_states.py",
           {"set(merged.values()), follows=False)": "set(merged.values()))"},
           "test_ready_by.py::test_rows_that_were_merged_into_each_other_are_looked_at_once"),
    Mutant("a look for results takes no connection of the pool", "features/results/polling.py",
           {"sessions.leave_pool(self._alias)": "sessions.wait_for_any_backend(self._alias)"},
           "test_waiting_sessions.py::test_a_request_that_holds_the_last_connection_of_the_pool_gets_its_result"),
    Mutant("cancel: what a worker has is not removed", "features/results/cancelling.py",
           {"WHERE id {in_ids} ORDER BY id {lock}": "WHERE id {in_ids} ORDER BY id"},
           "test_cancelling.py::test_a_claim_that_is_about_to_commit_is_waited_for"),
    Mutant("schedules: of a merged tick the winner's batches count", "features/results/task_states.py",
           {"{loser: of_winners[winner] for loser, winner":
            "{loser: Representative(of_winners[winner].state, loser) for loser, winner"},
           "test_ready_by.py::test_a_tick_that_was_merged_follows_the_batches_of_the_row_in_its_place"),
]  # fmt: skip
