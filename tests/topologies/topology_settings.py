"""The tests' settings, with the database driver's ``TOPOLOGY_OPTIONS`` and ``TOPOLOGY_APPS``, both as JSON."""

import json
import os

from settings_for_tests import *  # noqa: F403
from settings_for_tests import DATABASES, INSTALLED_APPS

DATABASES["default"].setdefault("OPTIONS", {}).update(
    json.loads(os.environ.get("TOPOLOGY_OPTIONS", "{}"))
)
INSTALLED_APPS += json.loads(os.environ.get("TOPOLOGY_APPS", "[]"))
