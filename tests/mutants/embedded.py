"""The guards of ``embedded``, each with the tests that notice its loss."""

from mutants import Mutant

MUTANTS = [
    Mutant("a web process keeps no pipe to the supervisor", "embedded/__init__.py",
           {"    for workers in _all:\n        workers._let_go()\n": ""},
           "test_embedded.py::test_workers_end_with_a_killed_server_although_its_web_processes_live"),
    Mutant("the first process of the autoreloader starts no workers", "embedded/__init__.py",
           {'serves = os.environ.get(DJANGO_AUTORELOAD_ENV) == "true" or': "serves = True or"},
           "test_embedded.py::test_runserver_has_one_supervisor_after_each_reload"),
    Mutant("workers beside runserver have its Python path", "embedded/__init__.py",
           {'[f"--pythonpath={path}"] if path else []': "[]"},
           "test_embedded.py::test_workers_have_the_python_path_of_runserver"),
    Mutant("workers start no workers", "embedded/__init__.py",
           {"if PIPE in os.environ or PARENT_PIPE in os.environ:": "if False:"},
           "test_embedded.py::test_workers_that_start_workers_are_refused"),
]  # fmt: skip
