"""The guards of ``features/bulk``, each with the tests that notice its loss."""

from mutants import BOTH, Mutant

MUTANTS = [
    Mutant("bulk: the click is the bound", "features/bulk/__init__.py",
           {"clicked=Click(*click)": "clicked=None"},
           "test_bulk.py::test_tasks_that_come_after_the_click_are_left"),
    Mutant("bulk: it stops between slices", "features/bulk/attempt.py",
           {'        self._check("")\n': "        return\n"},
           "test_bulk.py::test_it_shows_its_progress_and_is_cancelled_between_slices"),
    Mutant("bulk: only tasks of the ordered state", "features/bulk/__init__.py",
           {"status=Status(status)": "status=None"},
           "test_bulk.py::test_only_pending_tasks_are_cancelled"),
    Mutant("bulk: it checks once a second", "features/bulk/attempt.py",
           {"if time.monotonic() - self._checked >= CHECK_SECONDS:": "if True:"},
           "test_bulk.py::test_it_does_not_check_after_each_of_many_short_statements"),
    Mutant("bulk: another attempt goes on at the place", "features/bulk/attempt.py",
           {"self.place = None if place is None else Place.from_json(place)": "self.place = None"},
           "test_bulk.py::test_another_attempt_leaves_what_people_have_done_since", BOTH),
    Mutant("bulk: no task in a queue where none runs it", "features/bulk/ordering.py",
           {"if queue not in paused and NAME in (served.get(queue) or ())": "if True"},
           "test_bulk.py::test_without_a_worker_there_are_slices_by_hand"),
]  # fmt: skip
