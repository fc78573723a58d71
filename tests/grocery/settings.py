"""Settings of the grocery: those of the example project, one more app, short times, and the release."""

import os

from settings import *  # noqa: F403
from settings import DATABASES, INSTALLED_APPS, TXTASKS

RELEASE = int(os.environ["GROCERY_RELEASE"])
DAY_SECONDS = float(os.environ["GROCERY_DAY"])

INSTALLED_APPS = [*INSTALLED_APPS, "grocery"]
DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
TXTASKS = {
    "queues": ["default", "mail"],
    "lanes": {"till:*": {"at_most": 2}},
    "events": ["order.paid"],
    "heartbeat_interval": 0.5,
    "lease": 3,
    "grace": 4,
    "clean_interval": 2,
    "retry_base": 0.5,
    "retry_ceiling": 2,
    "keep_finished": {"*": None, "mail": 20},
    "release": f"{RELEASE}",
    **TXTASKS,
}
