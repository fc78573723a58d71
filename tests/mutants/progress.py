"""The guards of ``features/progress``, each with the tests that notice its loss."""

from mutants import Mutant

MUTANTS = [
    Mutant("the progress of a task that has ended is forgotten", "features/progress/of_worker.py",
           {"            self.notes.forget(run.attempt.task_id)\n": "            pass\n"},
           "test_progress.py::test_the_last_word_shows_on_the_handle_and_in_the_admin_while_the_task_runs"),
]  # fmt: skip
