"""The guards of ``features/traces``, each with the tests that notice its loss."""

from mutants import BOTH, Mutant

MUTANTS = [
    Mutant("tracers: an error before a task harms no task", "features/traces/tracing.py",
           {"            _report(self._tracer, error)\n            return \"\"": "            raise"},
           "test_tracing.py::test_an_error_of_a_tracer_harms_no_task_and_is_logged_once"),
    Mutant("tracers: an error of a tick keeps no task from being written", "features/traces/tracing.py",
           {"            _report(one, error)": "            raise"},
           "test_tracing.py::test_an_error_of_a_tracer_harms_no_task_and_is_logged_once"),
    Mutant("tracers: an error is logged once", "features/traces/tracing.py",
           {"    if tracer.name not in _reported:": "    if True:"},
           "test_tracing.py::test_an_error_of_a_tracer_harms_no_task_and_is_logged_once"),
    Mutant("tracers: headers that others wrote are no harm", "features/traces/tracing.py",
           {"sent if isinstance(sent, dict) else {}": "sent"},
           "test_tracing.py::test_headers_that_others_wrote_are_no_harm"),
    Mutant("tracers: they learn of a call that failed", "features/traces/tracing.py",
           {"self._call.handles, self._call.error = handles, error": "self._call.handles = handles"},
           "test_tracing.py::test_a_tracer_learns_of_a_call_that_failed"),
    Mutant("tracers: a claim reads the headers", "features/traces/of_rows.py",
           {"return bool(tracing.tracers)": "return False"},
           "test_tracing.py::test_each_claim_brings_the_headers_to_the_attempt", BOTH),
    Mutant("tracers: a claim without them reads no headers", "features/traces/of_rows.py",
           {"return bool(tracing.tracers)": "return True"},
           "test_golden_sql.py", BOTH),
]  # fmt: skip
