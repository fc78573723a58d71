"""The guards of ``backends``, each with the tests that notice its loss."""

from mutants import Mutant

MUTANTS = [
    Mutant("hand over: Django's result of a handed task has no end", "backends/results.py",
           {"    if status is compat.TaskResultStatus.RUNNING:  # also in another system\n": "    if False:\n"},
           "test_backend.py::test_a_task_that_was_handed_over_runs_in_the_other_system"),
    Mutant("Django's log lines need no thread of an event loop", "backends/running.py",
           {"if _only_logs(signal):": "if False:"},
           "test_async_tasks.py::test_a_task_of_django_calls_no_thread_for_its_log_lines"),
    Mutant("groups: a task of Django that waits has not failed", "backends/running.py",
           {"        error = meant(error)\n": ""},
           "test_groups.py::test_a_task_of_django_that_waits_in_a_group_has_not_failed"),
    Mutant("task_finished: an end is told once", "backends/endings.py",
           {"attempt is not None and was_announced(task_id, attempt)": "False"},
           "test_endings.py::test_an_attempt_that_ends_its_task_badly_is_told_once"),
    Mutant("task_finished: an attempt that was abandoned tells nothing", "backends/running.py",
           {"        except ClaimLost:\n            return False\n":
            "        except ClaimLost:\n            return True\n"},
           "test_endings.py::test_an_attempt_that_ends_after_its_worker_was_declared_lost_tells_nothing"),
    Mutant("task_finished: a task that was revived has not ended", "backends/endings.py",
           {"result.status is compat.TaskResultStatus.FAILED": "result"},
           "test_endings.py::test_an_end_that_is_over_when_it_is_told_is_none"),
    Mutant("Django is told of no failure of a misfit", "backends/running.py",
           {"return False  # the task waits for code": "pass  # the task waits for code"},
           "test_misfits.py::test_a_task_of_django_waits_and_is_not_announced_as_failed"),
]  # fmt: skip
