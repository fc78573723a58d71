"""The guards of ``features/misfits``, each with the tests that notice its loss."""

from mutants import Mutant

MUTANTS = [
    Mutant("a misfit counts no failure", "features/misfits/verdict.py",
           {"        counted=Counted.NOTHING,\n": ""},
           "test_misfits.py::test_a_call_that_does_not_fit_waits_and_runs_once_after_the_deploy"),
    Mutant("each wait of a misfit is longer", "features/misfits/verdict.py",
           {" * 2 ** min(tries, 10)": ""},
           "test_misfits.py::test_waits_double_up_to_five_minutes_in_one_entry"),
    Mutant("the wait of a misfit is its brake", "features/misfits/verdict.py",
           {"        delay=min(FIRST_WAIT": "        delay=timedelta(0) and min(FIRST_WAIT"},
           "test_misfits.py::test_a_thousand_misfits_cost_a_thousand_claims"),
    Mutant("a backlog of misfits is one log line", "features/misfits/of_worker.py",
           {"text not in self._texts and len(": "len("},
           "test_misfits.py::test_a_backlog_of_misfits_costs_one_claim_each_and_two_log_lines"),
    Mutant("a misfit is of the last attempt", "features/misfits/entry.py",
           {'is_misfit and last.get("attempt") == attempt': "is_misfit"},
           "test_misfits.py::test_explain_says_it"),
]  # fmt: skip
