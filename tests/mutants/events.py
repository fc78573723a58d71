"""The guards of ``features/events``, each with the tests that notice its loss."""

from mutants import Mutant

MUTANTS = [
    Mutant("events: only those of the settings", "features/events/api.py",
           {"if known is not None and event not in known:": "if False:"},
           "test_events.py::test_named_events_are_the_only_ones"),
    Mutant("events: one that nobody hears", "features/events/api.py",
           {"    if not found:\n": "    if False:\n"},
           "test_events.py::test_an_event_that_nobody_hears_warns_its_publisher"),
    Mutant("events: a function has one task", "features/events/api.py",
           {"_subscribers.setdefault(event, {})[declaration.name] = function":
            "_subscribers.setdefault(event, {})[declaration.name + str(id(function))] = function"},
           "test_events.py::test_a_function_that_is_declared_again_has_one_task"),
]  # fmt: skip
