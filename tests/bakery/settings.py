"""Settings of the bakery: those of the example project, two more queues, a lane, and the release."""

import os

from settings import *  # noqa: F403
from settings import INSTALLED_APPS, TXTASKS

INSTALLED_APPS = [*INSTALLED_APPS, "bakery"]
TXTASKS = {
    "queues": ["default", "mail", "reports"],
    "lanes": {"printer": {"at_most": 1}},
    "release": os.environ["BAKERY_RELEASE"],
    **TXTASKS,
}
