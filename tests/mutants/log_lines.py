"""The guards of ``features/log_lines``, each with the tests that notice its loss."""

from mutants import Mutant

MUTANTS = [
    Mutant("the log lines of a success are forgotten", "features/log_lines/handler.py",
           {"        if self._kept.pop(key, None) is not None:": "        if False:"},
           "test_last_lines.py::test_a_thousand_attempts_share_the_memory"),
    Mutant("a thread that outlives its attempt keeps no log lines", "features/log_lines/handler.py",
           {"        if key not in self._running:\n            return None\n        lines": "        lines",
            "        if key not in self._running:  # it has": "        if False:  # it has"},
           "test_last_lines.py::test_a_thread_that_outlives_its_attempt_keeps_nothing"),
    Mutant("the log lines of many attempts share the memory", "features/log_lines/handler.py",
           {"        for lines in list(self._kept.values()) if is_less else ():\n            _cut(lines, share)\n":
            ""},
           "test_last_lines.py::test_a_thousand_attempts_share_the_memory"),
    Mutant("no log line of this package is kept with a task", "features/log_lines/handler.py",
           {"if facts is None or record.name == OURS:": "if facts is None:"},
           "test_last_lines.py::test_the_lines_of_this_package_are_left_out"),
    Mutant("a record that cannot be formatted fails no task", "features/log_lines/handler.py",
           {"    except Exception as problem:\n": "    except ZeroDivisionError as problem:\n"},
           "test_last_lines.py::test_a_record_that_cannot_be_formatted_hurts_no_task"),
    Mutant("a site without log handlers has its warnings on stderr", "features/log_lines/handler.py",
           {"            _write_if_alone(record)\n": "            pass\n"},
           "test_last_lines.py::test_a_site_without_handlers_has_its_warnings_on_stderr"),
    Mutant("the handler of log lines waits for no lock", "features/log_lines/handler.py",
           {"        lines.append((record":
            "        with self.lock:\n            pass\n        lines.append((record"},
           "test_last_lines.py::test_the_handler_waits_for_no_lock"),
    Mutant("log lines that control a terminal are escaped", "features/log_lines/handler.py",
           {"return printable(f": "return (f"},
           "test_last_lines.py::test_hostile_lines_are_escaped_and_cut"),
]  # fmt: skip
