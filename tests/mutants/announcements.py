"""The guards of ``features/announcements``, each with the tests that notice its loss."""

from mutants import Mutant

MUTANTS = [
    Mutant("announcements: one end is announced once", "features/announcements/announcements.py",
           {'        if data["worker"] not in _living:\n            return\n': "",
            '_living.remove(data["worker"])': '_living.discard(data["worker"])'},
           "test_announcements.py::test_one_end_is_announced_once"),
    Mutant("announcements: without an exchange there are none", "features/announcements/announcements.py",
           {"if not config.lifecycle_exchange or config.broker_url is None:": "if config.broker_url is None:"},
           "test_announcements.py::test_without_an_exchange_nothing_is_announced"),
]  # fmt: skip
