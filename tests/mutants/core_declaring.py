"""The guards of ``core/declaring``, each with the tests that notice its loss."""

from mutants import Mutant

MUTANTS = [
    Mutant("hints of async functions have a queue of their own", "core/declaring/registry.py",
           {"if is_async(name) else queue_name": "if False else queue_name"},
           "test_async_claims.py::test_hints_of_async_functions_have_a_queue_of_their_own"),
    Mutant("with_result: for a success alone", "core/declaring/hooks.py",
           {'if option != "on_success":': "if False:"},
           "test_hooks.py::test_a_result_is_for_on_success_and_for_a_function_that_takes_it"),
    Mutant("causes: this package is not the project", "core/declaring/registry.py",
           {" - {_top(__name__)}": ""},
           "test_causes.py::test_the_project_is_the_packages_of_its_tasks_and_of_its_settings"),
    Mutant("a name is declared in one place", "core/declaring/registry.py",
           {"            raise InvalidDeclaration(_two_places(name, declaration, other))\n": "            pass\n"},
           "test_renaming.py::test_a_name_in_two_places_is_refused_at_import"),
    Mutant("a function that has begun is no misfit", "core/declaring/arguments.py",
           {" or not tracebacks.is_ours_alone(error)": ""},
           "test_misfits.py::test_a_signature_that_is_not_true_makes_no_misfit_of_a_failure"),
    Mutant("hooks: a reply to another system has its time", "core/declaring/specs.py",
           {'spec.get("expires")': "None"},
           "test_hand_over_exchange.py::test_a_reply_reaches_the_client_that_waits_and_ends_soon_without_it"),
    Mutant("hooks: the time of a reply is checked", "core/declaring/specs.py",
           {"for name in _OPTIONS if": "for name in OPTIONS.whole.columns if"},
           "test_hand_over_exchange.py::test_a_forged_time_of_a_reply_drops_the_reply_and_stops_nothing"),
]  # fmt: skip
