"""Settings of the bakery: those of the example project, two more queues, a lane, and the release."""

import os

from settings import *  # noqa: F403
from settings import INSTALLED_APPS, TXTASKS

INSTALLED_APPS = [*INSTALLED_APPS, "bakery"]
SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"  # a person stays logged in without the database
TXTASKS = {
    "queues": ["default", "mail", "reports", "events"],
    "hand_over": {"events": "bakery.relay.send"},
    "lanes": {"printer": {"at_most": 1}},
    "release": os.environ["BAKERY_RELEASE"],
    **TXTASKS,
}
