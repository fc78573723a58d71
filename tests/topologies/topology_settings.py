"""The tests' settings, with options of the database's driver: ``TOPOLOGY_OPTIONS`` as JSON."""

import json
import os

from settings_for_tests import *  # noqa: F403
from settings_for_tests import DATABASES

DATABASES["default"].setdefault("OPTIONS", {}).update(
    json.loads(os.environ.get("TOPOLOGY_OPTIONS", "{}"))
)
