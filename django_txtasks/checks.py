"""System checks: report settings and databases with which tasks would not run as promised."""

from __future__ import annotations

import contextlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from django.apps import AppConfig, apps
from django.conf import global_settings, settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import DatabaseError, InterfaceError, OperationalError, connections, router
from django.db.models import Model

from django_txtasks import migrations
from django_txtasks.conf import Config, get_config
from django_txtasks.core.declaring import registry
from django_txtasks.core.ground.wording import counted
from django_txtasks.exceptions import ConfigError
from django_txtasks.features.events import api as events
from django_txtasks.guards.server_kind import other_product
from django_txtasks.models import Task

OLDEST = {"postgresql": (14,), "mariadb": (10, 6), "mysql": (8, 0, 17), "sqlite": (3, 35)}


SIMILAR = 0.85
"""Similarity to TXTASKS from which a setting's name counts as a misspelling of it; see ``difflib``."""
MISSING = "txtasks.E008"
UNFINISHED = "txtasks.E036"
"""Id of the check for tables of a development version from before 0.1.0. Remove the check after that release."""
COMMIT_WITH_ALL_MIGRATIONS = "73825ce"
SQLITE_OPTIONS: dict[str, Any] = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 5,
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
}
"""The options of the page on databases, all of which a new site with SQLite needs."""
MAY_MIGRATE = "(Ignore this if the present command runs migrations.)"
DEFAULT_THREADS = 4
"""Threads of a worker process without ``--threads``."""


@register("txtasks")
def check_settings(**_: Any) -> list[CheckMessage]:
    """Check TXTASKS, and the names that task functions use from it."""
    try:
        config = get_config()
    except ConfigError as error:
        return [
            Error(str(error), hint="See the settings page of the documentation.", id="txtasks.E001")
        ]
    found: list[CheckMessage] = [
        Error(
            f"{declaration.name} is declared for queue {declaration.queue_name!r}, which is not served.",
            hint=f"TXTASKS['queues'] has {', '.join(map(repr, config.queues))}. Fix the name or add the queue.",
            id="txtasks.E002",
        )
        for declaration in registry.declarations()
        if declaration.queue_name not in config.queues
        and not declaration.name.startswith("django_txtasks.")  # notices use any queue
    ]
    notice = config.dead_notices.task
    if notice and notice not in registry.names():
        found.append(
            Error(
                f"TXTASKS['dead_notices']['task'] is {notice!r}, which no installed app declares.",
                hint="Name a task function as module.function, such as 'shop.tasks.page_me'.",
                id="txtasks.E013",
            )
        )
    found += _check_events(config)
    found += _check_names()
    found += _check_tenants()
    if not settings.USE_TZ:
        found.append(
            Error(
                "USE_TZ is False: times of tasks would be read in another time zone than they were written in.",
                hint="Set USE_TZ = True.",
                id="txtasks.E003",
            )
        )
    return found


def _check_names() -> Iterator[CheckMessage]:
    """Find settings that look like a misspelled TXTASKS, or belong into it."""
    names = [
        name for name in dir(settings) if name.isupper() and not hasattr(global_settings, name)
    ]
    options = {f"TXTASKS_{field.name.upper()}": field.name for field in fields(Config)}
    for name in names:
        if name in options and options[name] not in (getattr(settings, "TXTASKS", None) or {}):
            meant = f"TXTASKS = {{{options[name]!r}: …}}"
        elif name != "TXTASKS" and get_close_matches("TXTASKS", [name], cutoff=SIMILAR):
            meant = "TXTASKS"
        else:
            continue
        yield Warning(
            f"The settings have {name}, which nothing of django-txtasks reads.",
            hint=f"Use {meant}. If {name} is your own, silence this check.",
            id="txtasks.W027",
        )


def _check_tenants() -> Iterator[CheckMessage]:
    """Find task tables in each tenant's schema (django-tenants), where no worker looks for tasks."""
    types = getattr(settings, "TENANT_TYPES", None) or {}
    public = getattr(settings, "PUBLIC_SCHEMA_NAME", "public")
    lists = {
        f"TENANT_TYPES[{name!r}]['APPS']": kind.get("APPS", ())
        for name, kind in types.items()
        if name != public
    }
    lists["TENANT_APPS"] = getattr(settings, "TENANT_APPS", None) or ()
    for setting, names in lists.items():
        if any(name.split(".")[0] == "django_txtasks" for name in names):
            yield Error(
                f"{setting} has django_txtasks: each tenant's schema gets task tables of its own, in which no "
                "worker looks, so a tenant's tasks would wait for ever.",
                hint="Move django_txtasks to SHARED_APPS, run migrate_schemas --shared, and give tasks the name "
                "of the tenant as an argument. See the page on tenants of the documentation.",
                id="txtasks.E035",
            )


def _check_events(config: Config) -> Iterator[CheckMessage]:
    """Compare the events of TXTASKS with the events that have subscribers."""
    known = events.subscribed_events()
    for event in known:
        if config.events is not None and event not in config.events:
            yield Error(
                f"{', '.join(events.subscribers(event))}: subscribed to the event {event!r}, which may not be "
                "published.",
                hint="Fix the name, or add it to TXTASKS['events'].",
                id="txtasks.E025",
            )
    for event in config.events or ():
        if event not in known:
            yield Warning(
                f"TXTASKS['events'] has {event!r}, to which no task function has subscribed.",
                hint="Subscribe one, in the tasks.py of an installed app; or remove the event.",
                id="txtasks.W026",
            )


@register("txtasks")
def check_databases(**_: Any) -> list[CheckMessage]:
    """Check the DATABASES entries that hold tasks. Opens no connection."""
    found: list[CheckMessage] = []
    for alias in connections:
        if not router.allow_migrate_model(alias, Task):
            found += _check_apart(alias)
            continue
        found += _check_entry(alias)
        vendor, entry = connections[alias].vendor, connections[alias].settings_dict
        if vendor == "postgresql" and (trouble := pool_is_too_small(alias, DEFAULT_THREADS)):
            found.append(
                Warning(trouble, hint="Or give runworkers fewer --threads.", id="txtasks.W024")
            )
        if vendor == "sqlite":
            found += _check_sqlite(alias, entry)
        if vendor == "mysql":
            found += _check_mysql(alias, entry)
    return found


def _check_entry(alias: str) -> Iterator[CheckMessage]:
    """Check the settings that tasks need in one entry of DATABASES."""
    vendor, entry = connections[alias].vendor, connections[alias].settings_dict
    if vendor not in ("postgresql", "mysql", "sqlite"):
        yield Error(
            f"Database {alias!r} is {vendor}, on which tasks do not run.",
            hint="Use PostgreSQL, MariaDB, MySQL or SQLite, or a router that keeps txtasks away from it.",
            id="txtasks.E004",
        )
    if entry.get("TIME_ZONE") not in (None, "UTC"):
        yield Error(
            f"DATABASES[{alias!r}]['TIME_ZONE'] is {entry['TIME_ZONE']!r}: tasks keep their times in UTC.",
            hint="Remove TIME_ZONE from this entry.",
            id="txtasks.E005",
        )
    if not entry["AUTOCOMMIT"]:
        yield Error(
            f"Database {alias!r} has AUTOCOMMIT = False: workers and cleaners need each statement outside a "
            "transaction to be committed, and so does an enqueue() outside a transaction.",
            hint=f"Remove AUTOCOMMIT from DATABASES[{alias!r}]. Code that wants to commit by hand can call "
            "transaction.set_autocommit(False) itself.",
            id="txtasks.E022",
        )


@register(Tags.database)
def check_tables(*, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Check tables and versions of servers that can be reached. A server that is down is not a finding.

    Missing tables are only a warning, because the present command may be about to create them, whatever its
    name. On a database where nothing was migrated they are no finding.
    """
    return [
        Warning(found.msg, hint=f"{found.hint} {MAY_MIGRATE}", id="txtasks.W029")
        if found.id == MISSING
        else found
        for alias in databases or []
        for found in refusals(alias)
        if found.id != MISSING or _was_migrated(alias)
    ]


def _was_migrated(alias: str) -> bool:
    """Return True if any app was migrated there."""
    from django.db.migrations.recorder import MigrationRecorder  # imported only if needed

    try:
        return MigrationRecorder(connections[alias]).has_table()
    except OperationalError:  # the server went down in the meantime
        return False


def refusals(alias: str) -> list[CheckMessage]:
    """Return the errors that keep a command for this database's tasks from starting; none if it is down."""
    if alias not in connections:
        return [
            Error(
                f"Database {alias!r} is not in DATABASES.",
                hint=f"Known: {', '.join(map(repr, connections))}.",
                id="txtasks.E006",
            )
        ]
    if not router.allow_migrate_model(alias, Task):
        return []
    try:
        return list(_check_server(alias))
    except OperationalError:
        return []


@register(Tags.database)
def check_migrations(*, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Warn about migrations of this release that are missing. Workers start nevertheless, and wait for them."""

    def ask(alias: str) -> Iterator[CheckMessage]:
        if missing := _missing_migrations(alias):
            yield Warning(
                f"Database {alias!r} lacks migrations of this release: {', '.join(missing)}.",
                hint=f"Run: manage.py migrate --database {alias} {MAY_MIGRATE}",
                id="txtasks.W028",
            )

    # the server is down, or the table may not be read
    return _ask_each(databases, ask, DatabaseError, InterfaceError)


def _ask_each(
    databases: Sequence[str] | None,
    ask: Callable[[str], Iterable[CheckMessage]],
    *unless: type[Exception],
) -> list[CheckMessage]:
    """Return the findings in each database with tasks; none in a database that raises one of these errors."""
    found: list[CheckMessage] = []
    for alias in databases or []:
        if alias in connections and router.allow_migrate_model(alias, Task):
            with contextlib.suppress(*unless):
                found += ask(alias)
    return found


def _missing_migrations(alias: str) -> list[str]:
    """Return this app's migrations that were not applied; none without tables: another check reports that."""
    from django.db.migrations.recorder import MigrationRecorder  # imported only if needed

    label = Task._meta.app_label
    if label in settings.MIGRATION_MODULES:  # the project's own migrations
        return []
    applied = MigrationRecorder(connections[alias]).applied_migrations()
    names = sorted(module.name for module in pkgutil.iter_modules(migrations.__path__))
    missing = [name for name in names if (label, name) not in applied]
    return missing if len(missing) < len(names) else []


@register(Tags.database)
def check_health(*, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Warn about conditions inside the database that make the task table slow. Workers start nevertheless."""
    from django_txtasks.insight import bloat  # imported only if needed

    ids = {"bloat": "txtasks.W014", "snapshot": "txtasks.W015"}

    def ask(alias: str) -> Iterator[CheckMessage]:
        for one in bloat.findings(alias):
            yield Warning(f"Database {alias!r}: {one.title}", hint=one.action, id=ids[one.name])

    # the server is down, or the table is locked for VACUUM FULL
    return _ask_each(databases, ask, OperationalError)


@register(Tags.database)
def check_server_settings(
    *, databases: Sequence[str] | None = None, **_: Any
) -> list[CheckMessage]:
    """Warn about what the server decides otherwise than tasks need it. Workers start nevertheless."""
    from django_txtasks.insight import server_settings  # imported only if needed

    def ask(alias: str) -> Iterator[CheckMessage]:
        for one in server_settings.findings(alias):
            yield Warning(f"Database {alias!r} {one.title}", hint=one.action, id="txtasks.W037")

    # the server is down, or the tables of information_schema may not be read
    return _ask_each(databases, ask, DatabaseError, InterfaceError)


def pool_is_too_small(alias: str, threads: int) -> str:
    """Return a warning if a worker's threads would wait for each other's connections; otherwise an empty text."""
    pool = connections[alias].settings_dict["OPTIONS"].get("pool")
    if not pool:
        return ""
    options = pool if isinstance(pool, dict) else {}
    most = options.get("max_size") or options.get("min_size", 4)  # psycopg_pool's default
    if most >= threads:
        return ""
    return (
        f"The pool of database {alias!r} has at most {counted(most, 'connection')}, and a worker process "
        f"has {counted(threads, 'thread')}, each of which may need one: some would wait until the pool gives up. "
        f"Set DATABASES[{alias!r}]['OPTIONS']['pool'] = {{'max_size': {threads}}} or more."
    )


def _check_apart(alias: str) -> Iterable[CheckMessage]:
    """Warn about databases that the project writes to and that cannot hold tasks."""
    written = [
        model._meta.label
        for model in apps.get_models()
        if model._meta.managed and not model._meta.proxy and _is_written_to(alias, model)
    ]
    if written:
        shown = ", ".join(written[:3]) + (", …" if len(written) > 3 else "")
        yield Warning(
            f"{shown}: written to database {alias!r}, from which a router keeps tasks away. A task that is "
            "enqueued in a transaction there is written to another database: it runs even if that transaction "
            "rolls back.",
            hint=f"Let DATABASE_ROUTERS allow the app 'txtasks' on {alias!r}, migrate it, enqueue by "
            f"fn.using(using={alias!r}).enqueue(…), and add --database {alias} to runworkers. "
            "Or silence this check, if no task is enqueued together with these models.",
            id="txtasks.W021",
        )


def _is_written_to(alias: str, model: type[Model]) -> bool:
    """Return True if routers write the model there; False if a router needs a row to decide, as for shards."""
    try:
        return bool(router.db_for_write(model) == alias)
    except Exception:
        return False


def _check_server(alias: str) -> Iterable[CheckMessage]:
    connection = connections[alias]
    if product := other_product(alias):
        yield Error(
            f"Database {alias!r} is {product}, on which tasks do not run: it locks rows differently.",
            hint="Use PostgreSQL, MariaDB, MySQL or SQLite, or a router that keeps txtasks away from it.",
            id="txtasks.E004",
        )
        return
    is_mariadb = getattr(connection, "mysql_is_mariadb", False)
    product = "mariadb" if is_mariadb else connection.vendor
    version = tuple(connection.get_database_version())
    if version < OLDEST.get(product, ()):
        yield Error(
            f"Database {alias!r} is {product} {'.'.join(map(str, version))}, which is too old.",
            hint=f"Use {product} {'.'.join(map(str, OLDEST[product]))} or newer.",
            id="txtasks.E007",
        )
    with connection.cursor() as cursor:
        tables = connection.introspection.table_names(cursor)
    if Task._meta.db_table not in tables:
        yield Error(
            f"Database {alias!r} has no table {Task._meta.db_table}.",
            hint=f"Run: manage.py migrate --database {alias}",
            id=MISSING,
        )
    elif missing := _missing_former_migrations(alias):
        yield Error(
            f"Database {alias!r} has the tables of a development version from before release 0.1.0, which lack "
            f"{', '.join(missing)}. No migration leads from them to this version.",
            hint=f"Check out commit {COMMIT_WITH_ALL_MIGRATIONS}, run manage.py migrate --database {alias} "
            "with it, and return to this version.",
            id=UNFINISHED,
        )


def _missing_former_migrations(alias: str) -> list[str]:
    """Return migrations of earlier versions that a database lacks, of an app of which it has some.

    The first migration of an app replaces all of them.
    """
    from django.db.migrations.recorder import MigrationRecorder  # imported only if needed

    with contextlib.suppress(DatabaseError):  # it may not be read
        applied = MigrationRecorder(connections[alias]).applied_migrations()
        begun = [
            one
            for one in map(_former_migrations, apps.get_app_configs())
            if any(name in applied for name in one)
        ]
        return [name for former in begun for label, name in former if (label, name) not in applied]
    return []


def _former_migrations(app: AppConfig) -> Sequence[tuple[str, str]]:
    """Return what an app's first migration replaces; nothing if the project has migrations of its own."""
    first: str | None = getattr(app, "first_migration", None)
    if first is None or app.label in settings.MIGRATION_MODULES:
        return []
    replaced: Sequence[tuple[str, str]] = import_module(first).Migration.replaces
    return replaced


def _check_sqlite(alias: str, entry: dict[str, Any]) -> Iterable[CheckMessage]:
    options = entry.get("OPTIONS", {})
    if str(options.get("transaction_mode") or "").upper() not in ("IMMEDIATE", "EXCLUSIVE"):
        missing = {
            name: value
            for name, value in SQLITE_OPTIONS.items()
            if name == "transaction_mode" or name not in options
        }
        yield Error(
            f"SQLite database {alias!r} begins transactions as DEFERRED: "
            "two that write fail with 'database is locked'.",
            hint=f"Add 'OPTIONS': {missing!r} to DATABASES[{alias!r}].",
            id="txtasks.E009",
        )
    timeout = float(options.get("timeout", SQLITE_OPTIONS["timeout"]))
    try:
        lease = get_config().lease.total_seconds()
    except ConfigError:
        return
    if lease < 3 * timeout:
        yield Error(
            f"TXTASKS['lease'] is {lease:g} s, shorter than three times the timeout of SQLite database {alias!r} "
            f"({timeout:g} s): workers that wait for its lock would be declared lost.",
            hint="Lengthen TXTASKS['lease'] or shorten OPTIONS['timeout'].",
            id="txtasks.E010",
        )
    atomic = [declaration.name for declaration in registry.declarations() if declaration.atomic]
    if atomic:
        yield Warning(
            f"{', '.join(atomic)}: atomic tasks hold the only write lock of SQLite database {alias!r} "
            "while they run.",
            hint=f"Keep them well below {timeout:g} s, or use PostgreSQL. Then silence this check.",
            id="txtasks.W011",
        )


def _check_mysql(alias: str, entry: dict[str, Any]) -> Iterable[CheckMessage]:
    level = entry.get("OPTIONS", {}).get("isolation_level", "read committed")
    if str(level).lower() != "read committed":
        yield Error(
            f"Database {alias!r} runs at isolation level {level!r}: workers would read rows as they were before "
            "the lock, and lock gaps between rows.",
            hint=f"Remove isolation_level from DATABASES[{alias!r}]['OPTIONS']; "
            "Django's default is 'read committed'.",
            id="txtasks.E012",
        )
