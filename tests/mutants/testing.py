"""The guards of ``testing``, each with the tests that notice its loss."""

from mutants import Mutant

MUTANTS = [
    Mutant("passing time: not beyond its end", "testing/passing_time.py",
           {"if target > self._end + ROUNDING:": "if target > self._end + timedelta(days=9):"},
           "test_passing_time.py::test_what_becomes_due_runs_in_order_and_sees_its_time"),
    Mutant("passing time: ticks that cannot be written are left out", "testing/passing_time.py",
           {"            self._skipped.add(name)\n": ""},
           "test_passing_time.py::test_a_schedule_whose_ticks_cannot_be_written_is_told_of_and_stops_nothing"),
    Mutant("passing time: threads keep the real time", "testing/clock.py",
           {"        clock = _shown.get()\n": "        clock = _last[0]\n",
            "        token = _shown.set(self)\n": "        token = _shown.set(self)\n        _last[:] = [self]\n",
            "_patching = threading.Lock()\n": "_patching = threading.Lock()\n_last = [None]\n"},
           "test_passing_time.py::test_threads_and_other_databases_keep_the_real_time"),
    Mutant("passing time: a call in a task shares its time", "testing/clock.py",
           {"if isinstance(wrapper, Clock):": "if False and isinstance(wrapper, Clock):"},
           "test_passing_time.py::test_a_call_in_a_task_shares_its_time"),
]  # fmt: skip
