"""Settings of the example project: SQLite and no server, unless the environment names one.

``TXTASKS_DATABASE_URL``  postgres://user:password@host:port/name, mysql://… or
                          sqlite:///path?timeout=5
``TXTASKS_BROKER_URL``    amqp://user:password@host:port/vhost
``TXTASKS_SETTINGS``      further keys of TXTASKS, as JSON
"""

import json
import os
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

BASE_DIR = Path(__file__).resolve().parent
SECRET_KEY = "an example's key, not a secret"
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "testserver"]
ROOT_URLCONF = "urls"
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "txtasks_people:inbox"
LOGOUT_REDIRECT_URL = "login"
USE_TZ = True
TIME_ZONE = "UTC"
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_txtasks",
    "django_txtasks.contrib.people",
    "orders",
    "approvals",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",  # the pages are in the language of the browser
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]


def database(url: str) -> dict[str, object]:
    """Return one entry of DATABASES for a URL."""
    parts = urlsplit(url)
    server = {
        "NAME": parts.path[1:],
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
    }
    if parts.scheme in ("postgres", "postgresql"):
        return {"ENGINE": "django.db.backends.postgresql", **server}
    if parts.scheme in ("mysql", "mariadb"):
        import pymysql

        pymysql.install_as_MySQLdb()
        return {"ENGINE": "django.db.backends.mysql", **server, "OPTIONS": {"charset": "utf8mb4"}}
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": parts.path[1:] or BASE_DIR / "db.sqlite3",
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": float(parse_qs(parts.query).get("timeout", ["5"])[0]),
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    }


DATABASES = {"default": database(os.environ.get("TXTASKS_DATABASE_URL", "sqlite:///"))}
TXTASKS = {
    "broker_url": os.environ.get("TXTASKS_BROKER_URL"),
    **json.loads(os.environ.get("TXTASKS_SETTINGS", "{}")),
}
