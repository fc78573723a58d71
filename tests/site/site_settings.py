"""Settings of a site with tenants, Sentry and three kinds of servers: see run.py."""

import json
import os
from datetime import timedelta
from urllib.parse import unquote, urlsplit

import sentry_sdk

_database = urlsplit(os.environ["SITE_DATABASE_URL"])
SECRET_KEY = "a site that lives for a minute"
DEBUG, USE_TZ, ALLOWED_HOSTS = False, True, ["127.0.0.1"]
ROOT_URLCONF = "site_pages"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SHARED_APPS = ["django_tenants", "customers", "django_txtasks", "django.contrib.contenttypes"]
TENANT_APPS = ["shop"]
INSTALLED_APPS = [*SHARED_APPS, *TENANT_APPS]
TENANT_MODEL, TENANT_DOMAIN_MODEL = "customers.Client", "customers.Domain"
DATABASE_ROUTERS = ["django_tenants.routers.TenantSyncRouter"]
DATABASES = {
    "default": {
        "ENGINE": "django_tenants.postgresql_backend",
        "NAME": _database.path[1:],
        "USER": unquote(_database.username or ""),
        "PASSWORD": unquote(_database.password or ""),
        "HOST": _database.hostname,
        "PORT": _database.port or "",
    }
}
TXTASKS = {
    "broker_url": os.environ["SITE_BROKER_URL"],
    "queue_prefix": os.environ["SITE_PREFIX"],
    # only a hint starts a task soon: a scan is far away
    "poll_interval": timedelta(seconds=60),
    "retry_base": timedelta(milliseconds=100),
}


def keep_event(event, hint):
    """Write what Sentry would get to a file."""
    with open(os.environ["SITE_EVENTS"], "a") as file:
        known = {name: event.get(name) for name in ("message", "exception", "tags", "user")}
        file.write(json.dumps(known, default=str) + "\n")


sentry_sdk.init(dsn="http://key@127.0.0.1:9/1", before_send=keep_event)
