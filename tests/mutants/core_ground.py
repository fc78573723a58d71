"""The guards of ``core/ground``, each with the tests that notice its loss."""

from mutants import Mutant

MUTANTS = [
    Mutant("an entry has few bytes of log lines", "core/ground/payload.py",
           {"        if size > limit - len(LEFT_OUT.encode()):": "        if False:"},
           "test_last_lines.py::test_an_entry_has_8_kb_of_lines_at_most"),
    Mutant("what is kept for ever keeps no ended batches of others", "core/ground/retention.py",
           {"max((age for age in every if age is not None), default=None)":
            "max(every) if None not in every else None"},
           "test_bad_settings.py::test_each_queue_may_keep_for_a_time_of_its_own"),
    Mutant("an outcome that no queue keeps gets no row", "core/ground/retention.py",
           {"any(ages[outcome] != timedelta(0) for": "any(set(ages.values()) != {timedelta(0)} for"},
           "test_retention.py::test_an_outcome_that_is_kept_nowhere_gets_no_row"),
    Mutant("rows that stay for ever are left out at the longest time", "core/ground/retention.py",
           {"all(None not in ages.values() for ages in self._ages.values())": "True"},
           "test_retention.py::test_each_outcome_is_removed_at_its_time"),
    Mutant("and so are those of queues without a time", "core/ground/retention.py",
           {"age == self.longest and OTHERS in self._ages": "age == self.longest"},
           "test_retention.py::test_rows_of_the_longest_time_are_removed_without_a_condition"),
    Mutant("dead tasks are discarded where a time is set", "core/ground/retention.py",
           {"{OTHERS: None, **by_queue}": "{OTHERS: timedelta(1), **by_queue}"},
           "test_discard_dead.py::test_a_queue_that_has_no_time_keeps_its_dead_tasks"),
    Mutant("where nothing can fork, the package is imported", "core/ground/forks.py",
           {'if hasattr(os, "register_at_fork"):': "if True:"},
           "test_forked_task.py::test_where_nothing_can_fork_tasks_are_enqueued"),
    Mutant("causes: code of libraries is no place", "core/ground/causes.py",
           {' and module.partition(".")[0] in own:': ":"},
           "test_causes.py::test_the_place_is_in_the_project_though_a_library_raises"),
    Mutant("causes: an odd error ends no slot", "core/ground/causes.py",
           {"except BaseException:  # a SystemExit": "except Exception:  # a SystemExit"},
           "test_causes.py::test_an_odd_error_has_a_cause_too"),
    Mutant("causes: the place of a timeout does not count", "core/ground/causes.py",
           {"if isinstance(error, INTERRUPTIONS):": "if False:"},
           "test_causes.py::test_a_timeout_is_one_cause_wherever_the_task_was"),
]  # fmt: skip
