"""The guards of ``contrib/verify``, each with the tests that notice its loss."""

from mutants import Mutant

MUTANTS = [
    Mutant("a storm removes the queue for hints of async functions", "contrib/verify/stage.py",
           {"(*hints, topology.lost_queue": "(hints[0], topology.lost_queue"},
           "test_verify.py::test_a_storm_keeps_every_promise_and_leaves_nothing_behind"),
]  # fmt: skip
