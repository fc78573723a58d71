"""The guards of ``contrib/sentry``, each with the tests that notice its loss."""

from mutants import Mutant

MUTANTS = [
    Mutant("Sentry: no second span for a task of Django", "contrib/sentry/tracer.py",
           {"    if present.op == OF_DJANGO:": "    if False:"},
           "test_traces_sentry.py::test_there_is_one_span_for_a_task_of_django_too"),
    Mutant("Sentry: a client that is off gets nothing", "contrib/sentry/tracer.py",
           {"    return sentry_sdk.get_client().is_active()": "    return True"},
           "test_traces_sentry.py::test_a_client_that_is_off_leaves_the_column_empty_and_runs_the_task"),
    Mutant("Sentry: no check-ins unless asked for", "contrib/sentry/tracer.py",
           {"monitor_of(schedule) if self._checks_in and _is_on() else None": "monitor_of(schedule)",
            "headers.get(MONITOR) if self._checks_in else None": "headers.get(MONITOR)"},
           "test_traces_sentry.py::test_check_ins_are_off_unless_asked_for"),
    Mutant("Sentry: no monitor for an interval that it does not know", "contrib/sentry/monitors.py",
           {"    elif schedule.every % SHORTEST_INTERVAL:": "    elif False:"},
           "test_traces_sentry.py::test_an_interval_that_sentry_does_not_know_has_no_monitor"),
]  # fmt: skip
