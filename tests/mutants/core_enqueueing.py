"""The guards of ``core/enqueueing``, each with the tests that notice its loss."""

from mutants import Mutant

MUTANTS = [
    Mutant("other databases: refused at enqueueing", "core/enqueueing/__init__.py",
           {"        parts.check_database(bound.alias)\n": ""},
           "test_other_databases.py::"
           "test_a_server_that_only_speaks_the_protocol_is_refused_by_a_check_and_at_enqueueing"),
    Mutant("hints are sent after the commit", "core/enqueueing/commit_hints.py",
           {"connection.on_commit(hook.send_hints)": "hook.send_hints()"},
           "test_enqueueing.py::test_a_hook_has_a_name_for_the_log"),
    Mutant("the row is written in the transaction", "core/enqueueing/__init__.py",
           {"        result = write(connections[bound.alias], [bound.defaults], [task])\n":
            "        connections[bound.alias].on_commit("
            "lambda: write(connections[bound.alias], [bound.defaults], [task]))\n"
            "        result: Any = None\n"},
           "test_enqueueing.py::test_the_row_is_written_in_the_transaction_and_not_after_its_commit"),
    Mutant("a rolled-back savepoint takes its hints along", "core/enqueueing/commit_hints.py",
           {" if its == savepoints": ""},
           "test_bad_calls.py::test_hints_are_those_of_the_rows_that_savepoints_have_left"),
    Mutant("a queue is looked for at each call of a function", "core/enqueueing/calls.py",
           {"        check_queue(bound.defaults.queue_name)\n": ""},
           "test_enqueue_cost.py::test_a_queue_that_the_settings_lose_is_refused_where_it_was_served_before"),
    Mutant("hints: a time limit ends the task that sends them", "core/enqueueing/commit_hints.py",
           {"        except INTERRUPTIONS:": "        except ZeroDivisionError:"},
           "test_database_hints.py::test_a_time_limit_in_the_midst_of_it_stops_no_hint"),
    Mutant("once: who is not the first writes nothing", "core/enqueueing/__init__.py",
           {"if one[1].task_id not in owners]": "]"},
           "test_once.py::test_the_second_one_is_the_first"),
    Mutant("once: a request of its own is repeated", "core/enqueueing/__init__.py",
           {"repeated(only, write_each, after_lock_timeouts=False)": "write_each()"},
           "test_once.py::test_an_enqueue_in_no_transaction_is_repeated_where_the_database_asks_for_it"),
    Mutant("links: a call that once refuses has none", "core/enqueueing/__init__.py",
           {"            part.written(alias, new)": "            part.written(alias, made)"},
           "test_links.py::test_the_loser_of_once_has_no_link"),
    Mutant("links: each call has its own objects", "core/enqueueing/calls.py",
           {"    bound = bound._replace(known=None)\n": ""},
           "test_links.py::test_calls_with_the_same_key_or_lane_keep_their_own_objects"),
    Mutant("links: committed with their task", "core/enqueueing/__init__.py",
           {"needs_atomic = savepoint or any(bound.parts for bound, _, _ in calls)": "needs_atomic = savepoint"},
           "test_links.py::test_without_a_transaction_a_task_and_its_link_are_written_together"),
]  # fmt: skip
