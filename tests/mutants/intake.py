"""The guards of ``features/intake``, each with the tests that notice its loss."""

from mutants import BOTH, Mutant

MUTANTS = [
    Mutant("intake: a time that has passed is now", "features/intake/reading.py",
           {"return None if is_past else moment": "return moment"},
           "test_intake.py::test_a_perform_at_that_has_passed_is_now_and_overtakes_nobody"),
    Mutant("intake: only functions with intake=True are enqueued", "features/intake/reading.py",
           {"if not declaration.intake:": "if False:"},
           "test_intake.py::test_a_message_that_cannot_be_a_task_goes_away_with_its_reason_and_keeps_no_other"),
    Mutant("intake: a message has an id", "features/intake/reading.py",
           {"if not isinstance(found, str) or not found:": "if False:"},
           "test_intake.py::test_a_message_that_cannot_be_a_task_goes_away_with_its_reason_and_keeps_no_other"),
    Mutant("intake: a misspelt key is refused", "features/intake/reading.py",
           {"if key not in KEYS:": "if False:"},
           "test_intake.py::test_a_message_that_cannot_be_a_task_goes_away_with_its_reason_and_keeps_no_other"),
    Mutant("intake: a body has a limit", "features/intake/reading.py",
           {"if len(body) > MAX_BODY_BYTES:": "if False:"},
           "test_intake.py::test_a_message_that_cannot_be_a_task_goes_away_with_its_reason_and_keeps_no_other"),
    Mutant("intake: each id counts once", "features/intake/reading.py",
           {"once=_message_id(message.properties),": ""},
           "test_intake.py::test_messages_with_one_id_are_one_task"
           " test_intake.py::test_a_message_whose_acknowledgement_was_lost_is_not_taken_twice"),
    Mutant("intake: a message is acknowledged after the commit", "features/intake/loop.py",
           {"        some = self._waiting[: self._most]\n":
            "        some = self._waiting[: self._most]\n"
            "        self._source.acknowledge(one for one, _ in some)\n"},
           "test_intake.py::test_while_the_database_refuses_everything_no_message_is_refused", BOTH),
    Mutant("intake: a message that cannot be written keeps no other", "features/intake/writing.py",
           {"if len(calls) == 1 or not _may_be_of_a_call(error):": "if True:"},
           "test_intake.py::test_a_message_that_the_database_alone_refuses_keeps_no_other", BOTH),
    Mutant("intake: a database that refuses everything refuses no message", "features/intake/writing.py",
           {"                failed[place] = f": "                refused[place] = f"},
           "test_intake.py::test_while_the_database_refuses_everything_no_message_is_refused", BOTH),
    Mutant("intake: a lock is no fault of a message", "features/intake/writing.py",
           {" and not (is_in_the_way(error) or took_too_long(error))": ""},
           "test_intake.py::test_a_lock_is_no_fault_of_a_message_although_the_others_of_its_write_could_go"),
    Mutant("intake: a write that takes too long is made smaller", "features/intake/loop.py",
           {"self._most = max(1, len(some) // 2) if took_too_long(error) else self._most": "pass"},
           "test_intake.py::test_a_write_that_takes_too_long_is_made_smaller"),
    Mutant("intake: after a failure the session is a new one", "features/intake/loop.py",
           {"connections[self._alias].close()  # after": "pass  # after"},
           "test_intake.py::test_a_session_that_can_only_read_is_replaced"),
    Mutant("intake: messages of a lost connection are held once", "features/intake/loop.py",
           {"        self._waiting = [one for one in self._waiting if is_held(one[0])]\n": ""},
           "test_intake.py::test_messages_of_a_connection_that_is_gone_come_again_and_are_held_once"),
]  # fmt: skip
