"""The guards of ``features/stacks``, each with the tests that notice its loss."""

from mutants import Mutant

MUTANTS = [
    Mutant("an answer is the worker's own", "features/stacks/statements.py",
           {"AND attempt = %(attempt)s AND worker = %(worker)s": "AND attempt = %(attempt)s"},
           "test_stacks.py::test_only_its_own_worker_answers_a_question"),
    Mutant("an answer is of the attempt that was asked for", "features/stacks/statements.py",
           {"AND attempt = %(attempt)s AND worker = %(worker)s": "AND worker = %(worker)s"},
           "test_stacks.py::test_only_its_own_worker_answers_a_question"),
    Mutant("a question is answered once", "features/stacks/statements.py",
           {"worker = %(worker)s AND answered_at IS NULL\"\n#": "worker = %(worker)s\"\n#"},
           "test_stacks.py::test_only_its_own_worker_answers_a_question"),
    Mutant("a worker reads its own questions", "features/stacks/statements.py",
           {"WHERE worker = %(worker)s AND answered_at IS NULL": "WHERE answered_at IS NULL"},
           "test_stacks.py::test_only_its_own_worker_answers_a_question"),
    Mutant("a stack of another attempt is called so", "features/stacks/requests.py",
           {"(task.attempt, task.worker) != (asked.attempt, asked.worker)": "False"},
           "test_stacks.py::test_an_answer_about_another_attempt_is_called_so"),
    Mutant("no stack is asked of a lost worker", "features/stacks/requests.py",
           {"if worker.lost or worker.is_silent(worker.now):": "if False:"},
           "test_stacks.py::test_a_lost_worker_cannot_answer"),
    Mutant("control characters in a stack are escaped", "features/stacks/frames.py",
           {"map(printable, lines)": "lines"},
           "test_stacks.py::test_hostile_names_control_no_page_and_no_terminal"),
    Mutant("a deep stack is cut", "features/stacks/frames.py", {"    if left <= 0:": "    if True:"},
           "test_stacks.py::test_a_deep_stack_is_cut_and_shows_no_value"),
    Mutant("old requests for stacks are removed", "features/stacks/of_cleaner.py",
           {"            answers.forget(context.alias)\n": "            pass\n"},
           "test_stacks.py::test_old_requests_are_removed"),
]  # fmt: skip
