"""The guards of ``features/once``, each with the tests that notice its loss."""

from mutants import Mutant

MUTANTS = [
    Mutant("once: a key that is taken stays taken", "features/once/keys.py",
           {"excluded.until WHERE txtasks_once.until <= {now}": "excluded.until"},
           "test_once.py::test_two_at_once_write_one"),
    Mutant("once: keys are taken in one order", "features/once/keys.py",
           {"digests = sorted(first)": "digests = list(first)"},
           "test_once.py::test_opposite_orders_do_not_wait_for_each_other", ("MARIADB",)),
    Mutant("once: on MariaDB nobody waits in an INSERT", "features/once/keys.py",
           {"elif not (_waits_apart(alias) and _take_in_turns(alias, wanted, values, params)):": "else:"},
           "test_once.py::test_of_those_who_wait_for_one_that_rolls_back_one_gets_the_key", ("MARIADB",)),
    Mutant("keys of once follow the oldest name", "features/once/of_calls.py",
           {"declaration.oldest_name": "declaration.name"},
           "test_renaming.py::test_once_follows_the_oldest_name"),
]  # fmt: skip
