"""The tests' settings, with this app."""

from settings_for_tests import *  # noqa: F403
from settings_for_tests import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "failpoints"]
