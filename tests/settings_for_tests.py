"""The example project's settings, with an app that shows what ran, and no broker by default.

Tests that want the broker take the ``broker`` fixture.
"""

import json
import os

import django
from settings import *  # noqa: F403
from settings import DATABASES, INSTALLED_APPS, MIDDLEWARE, TXTASKS

INSTALLED_APPS = [*INSTALLED_APPS, "probe"]
# Tests choose the language by LANGUAGE_CODE.
MIDDLEWARE = [one for one in MIDDLEWARE if one != "django.middleware.locale.LocaleMiddleware"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
if django.VERSION >= (6, 1):  # where there is no default mailer any more
    MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}
TXTASKS = {"queues": ["default", "mail"], **TXTASKS}
SILENCED_SYSTEM_CHECKS = [
    "txtasks.W050"
]  # functions of the probe that test_people_declared.py looks at
TASKS = {
    "default": {"BACKEND": "django_txtasks.backends.TxTasksBackend"},
    "immediate": {"BACKEND": "django_txtasks.backends.ImmediateBackend"},
    "dummy": {"BACKEND": "django_txtasks.backends.DummyBackend", "QUEUES": ["default", "mail"]},
}
if django.VERSION < (6, 0):  # where Tasks are a package of their own
    INSTALLED_APPS.append("django_tasks")

if DATABASES["default"]["ENGINE"].endswith("mysql"):
    # PyMySQL would read all certificates of the machine for each connection, which takes 0.03 s.
    DATABASES["default"]["OPTIONS"]["ssl_disabled"] = True

if os.environ.get("TXTASKS_IN_TEST_DATABASE"):
    # A process that a test starts works on the test's own database.
    DATABASES["default"]["NAME"] = os.environ["TXTASKS_IN_TEST_DATABASE"]
if os.environ.get("TXTASKS_SECOND_DATABASE"):
    DATABASES["second"] = {
        **DATABASES["default"],
        **json.loads(os.environ["TXTASKS_SECOND_DATABASE"]),
    }
if os.environ.get("TXTASKS_TEST_ISOLATION"):
    import psycopg

    level = getattr(psycopg.IsolationLevel, os.environ["TXTASKS_TEST_ISOLATION"])
    DATABASES["default"].setdefault("OPTIONS", {})["isolation_level"] = level

if os.environ.get("TXTASKS_TEST_SHORT_SECONDS"):
    from django_txtasks.processes import scaling_rule as scaling

    scaling.SHORT_SECONDS = float(os.environ["TXTASKS_TEST_SHORT_SECONDS"])

if os.environ.get("TXTASKS_TEST_WITHOUT"):
    # Names of accelerators and guards, which this process and all that it starts do without. "guarded" is the
    # module with the guards around the code of tasks.
    from django_txtasks import assembly

    left_out = os.environ["TXTASKS_TEST_WITHOUT"].split(",")
    assembly.ACCELERATORS = tuple(one for one in assembly.ACCELERATORS if one.name not in left_out)
    assembly.GUARDS = tuple(one for one in assembly.GUARDS if one.name not in left_out)
    if "guarded" in left_out:
        plain = "django_txtasks.core.working.running.unguarded"
        assembly.COMPOSED[plain] = plain
    assembly.assemble()

if os.environ.get("TXTASKS_TEST_POOL"):
    pool = {"min_size": 1, "max_size": int(os.environ["TXTASKS_TEST_POOL"]), "timeout": 10}
    DATABASES["default"].setdefault("OPTIONS", {})["pool"] = pool

if os.environ.get("TXTASKS_TEST_SENTRY"):
    import sentry_sdk

    def keep_event(event, hint):
        """Write an event to the file that the test names, instead of sending it."""
        known = (
            "level",
            "logentry",
            "message",
            "tags",
            "user",
            "extra",
            "exception",
            "breadcrumbs",
        )
        with open(os.environ["TXTASKS_TEST_SENTRY"], "a") as file:
            file.write(json.dumps({name: event.get(name) for name in known}, default=str) + "\n")

    sentry_sdk.init(dsn="http://key@127.0.0.1:9/1", before_send=keep_event)
    sentry_sdk.get_global_scope().set_tag("site", "shop")
