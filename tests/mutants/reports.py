"""The guards of ``features/reports``, each with the tests that notice its loss."""

from mutants import Mutant

MUTANTS = [
    Mutant("hand over: a drain hides no name", "features/reports/names.py",
           {" - {DRAIN_MARK}": ""},
           "test_hand_over_settings.py::test_a_drain_hides_no_undeclared_name_and_makes_none"),
    Mutant("unknown names: each queue asks its own workers", "features/reports/names.py",
           {"if count and name not in names[queue]": "if not any(name in one for one in names.values())"},
           "test_unknown_names.py::test_a_worker_of_another_queue_declares_nothing_for_this_queue"),
    Mutant("owners: a queue that is handed over has no other owner", "features/reports/whose.py",
           {"        if is_handed(queue):\n            return Whose.HANDED\n": ""},
           "test_readers_of_rows.py::test_each_reader_says_of_each_kind_of_row"),
    Mutant("owners: only in the queues that it serves", "features/reports/whose.py",
           {"one.is_foreign and queue in one.queues and": "one.is_foreign and"},
           "test_readers_of_rows.py::test_a_foreign_worker_owns_rows_of_its_queues_alone"),
    Mutant("owners: the mark of a process is that of our workers", "features/reports/whose.py",
           {" or f'\"{processes.PREFIX}' in sessions": ""},
           "test_readers_of_rows.py::test_a_task_that_workers_in_other_languages_leave_says_so"),
    Mutant("unknown names: with many priorities fewer rows are read", "features/reports/names.py",
           {"MOST_ROWS_READ // max(1, len(places))": "MOST_ROWS_READ"},
           "test_unknown_names.py::test_with_many_priorities_fewer_rows_of_each_are_read"),
    Mutant("unknown names: a worker without names turns this off for its own queues", "features/reports/names.py",
           {"if names and others is not None else None": "if others is not None else None"},
           "test_unknown_names.py::test_a_name_counts_as_declared_while_a_worker_that_declares_it_lives"),
]  # fmt: skip
