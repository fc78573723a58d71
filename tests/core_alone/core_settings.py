"""The settings of a site that has nothing but the core."""

import os

from settings import DATABASES

DATABASES["default"]["TEST"] = {"NAME": os.environ["CORE_DATABASE"]}
if os.environ.get("CORE_DATABASE_IS_MADE"):  # a process that a test starts
    DATABASES["default"]["NAME"] = os.environ["CORE_DATABASE"]
INSTALLED_APPS = ["django_txtasks", "core_shop"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
SECRET_KEY = "of a test"
TXTASKS = {
    "poll_interval": 0.1,
    "heartbeat_interval": 0.2,
    "lease": 2,
    "retry_base": 0.05,
    "grace": 1,
    "keep_finished": 3600,
}
