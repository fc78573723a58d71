"""The guards of ``features/reports``, each with the tests that notice its loss."""

from mutants import Mutant

MUTANTS = [
    Mutant("hand over: a drain hides no name", "features/reports/names.py",
           {" - {DRAIN_MARK}": ""},
           "test_hand_over_settings.py::test_a_drain_hides_no_undeclared_name_and_makes_none"),
    Mutant("unknown names: each queue asks its own workers", "features/reports/names.py",
           {"if name not in names[queue]": "if not any(name in one for one in names.values())"},
           "test_unknown_names.py::test_a_worker_of_another_queue_declares_nothing_for_this_queue"),
    Mutant("unknown names: with many priorities fewer rows are read", "features/reports/names.py",
           {"MOST_ROWS_READ // max(1, len(places))": "MOST_ROWS_READ"},
           "test_unknown_names.py::test_with_many_priorities_fewer_rows_of_each_are_read"),
    Mutant("unknown names: a worker without names turns this off for its own queues", "features/reports/names.py",
           {"if names and others is not None else None": "if others is not None else None"},
           "test_unknown_names.py::test_a_name_counts_as_declared_while_a_worker_that_declares_it_lives"),
]  # fmt: skip
