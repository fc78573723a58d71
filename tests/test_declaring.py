"""@task, TXTASKS, backoff and the system checks: errors are reported before a task runs."""

import dataclasses
import functools
import inspect
import json
import random
import re
from datetime import timedelta

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import connection, connections
from django.test import override_settings
from probe import tasks

import django_txtasks
from django_txtasks import TaskContext, TaskHandle, checks, exceptions, task
from django_txtasks.conf import KEYS, Config, get_config, parse
from django_txtasks.core.declaring import registry
from django_txtasks.core.declaring.options import CORE
from django_txtasks.core.enqueueing import calls
from django_txtasks.core.enqueueing.handles import HANDLE, CoreHandle
from django_txtasks.core.ground.config import CoreConfig, parse_as
from django_txtasks.core.ground.retry import backoff
from django_txtasks.core.rows import follow_ups
from django_txtasks.core.rows.enqueueing import RowDefaults, _with_options
from django_txtasks.core.rows.running import CONTEXT, CoreContext
from django_txtasks.exceptions import ConfigError, InvalidDeclaration, TxTasksError, UnknownTask
from django_txtasks.functions import TaskFunction
from django_txtasks.options import COLUMNS, OF_TASK, OF_USING, Option

pytestmark = pytest.mark.smoke


def plain(a, b=2):
    """A docstring."""
    return a + b


async def coroutine():
    pass


def no_parameter():
    pass


@pytest.fixture(autouse=True)
def only_declared_here():
    before = dict(registry._declarations)
    yield
    registry._declarations.clear()
    registry._declarations.update(before)


def test_a_task_function_is_still_a_function():
    declared = task(plain)
    assert declared(1, b=3) == 4
    assert (declared.__name__, declared.__doc__) == ("plain", "A docstring.")
    assert repr(declared) == f"<task function {__name__}.plain>"
    assert registry.get(f"{__name__}.plain").function is plain


def test_bare_and_with_options_are_the_same():
    assert task(plain).declaration == task()(plain).declaration


def test_using_changes_a_copy():
    changed = tasks.note.using(priority=5).using(queue_name="mail")
    assert changed.options == {"priority": 5, "queue_name": "mail"}
    assert tasks.note.options == {}


@pytest.mark.parametrize(
    "function",
    [lambda: None, functools.partial(plain, 1), plain.__call__, str, "text", classmethod(plain)],
    ids=["lambda", "partial", "method", "class", "text", "classmethod"],
)
def test_only_functions_of_a_module_can_be_declared(function):
    with pytest.raises(InvalidDeclaration, match="module"):
        task(function)


def test_a_function_inside_a_function_cannot_be_found_by_a_worker():
    def inner():
        pass

    with pytest.raises(InvalidDeclaration, match="top level of a module"):
        task(inner)


def test_atomic_and_async_contradict_each_other():
    with pytest.raises(InvalidDeclaration, match="async and atomic=True"):
        task(atomic=True)(coroutine)


@pytest.mark.parametrize("option", ["max_attempts", "max_crashes"])
@pytest.mark.parametrize("value", [0, -1, 40_000, "3", None, 1.5], ids=str)
def test_counts_start_at_one(option, value):
    with pytest.raises(InvalidDeclaration, match=option):
        task(**{option: value})(plain)


def test_a_context_needs_a_parameter():
    with pytest.raises(InvalidDeclaration, match="no parameter"):
        task(takes_context=True)(no_parameter)


def test_a_priority_is_checked_at_declaration():
    with pytest.raises(TxTasksError, match="from -100 to 100"):
        task(priority=1000)(plain)


@pytest.mark.parametrize(
    ("function", "known"), [(task, OF_TASK), (TaskFunction.using, OF_USING)], ids=["task", "using"]
)
def test_help_lists_each_option_with_its_meaning(function, known):
    parameters = inspect.signature(function).parameters
    assert set(known) <= set(parameters)
    text = inspect.getdoc(function).split("Args:\n")[1].split("\n\n")[0]
    said = re.findall(r"^    (\w+(?:,\s+\w+)*): +\S", text, re.MULTILINE)
    assert sorted(", ".join(said).replace(",", "").split()) == sorted(known)


def test_features_add_options_to_those_of_the_core():
    assert CORE.of_task.items() <= OF_TASK.items()
    assert CORE.of_using.items() <= OF_USING.items()
    assert set(OF_USING) - set(CORE.of_using) == {
        "unique_key",
        "settle",
        "lane",
        "once",
        "once_for",
        "subject",
    }


def test_features_add_methods_to_the_classes_of_the_core():
    assert (HANDLE.whole, CONTEXT.whole) == (TaskHandle, TaskContext)
    assert not hasattr(CoreHandle, "result")
    assert not hasattr(CoreContext, "step")
    assert CoreHandle.__slots__
    assert not TaskHandle.__slots__


def test_an_option_with_a_column_is_declared_in_one_place(monkeypatch):
    tags = Option((), lambda name, option, value: tuple(value), json.dumps)
    for options in (OF_TASK, OF_USING, COLUMNS):
        monkeypatch.setitem(options, "tags", tags)
    with_tags = _with_options(RowDefaults)
    for module in (calls, follow_ups):
        monkeypatch.setattr(module, "RowDefaults", with_tags)
    assert with_tags("any").tags == "[]"
    declared = task(tags=["a"])(plain)
    assert calls.bind(declared).defaults.tags == '["a"]'
    assert calls.bind(declared.using(tags=["b"])).defaults.tags == '["b"]'
    spec = json.loads(json.dumps(declared.declaration.task_spec))
    assert follow_ups.follow_up(spec, args="[]").defaults.tags == '["a"]'
    assert "tags" not in task(plain).declaration.task_spec  # older workers do not know it


def test_tasks_of_installed_apps_are_discovered():
    assert "probe.tasks.note" in registry.names()
    assert "orders.tasks.send_receipt" in registry.names()
    with pytest.raises(UnknownTask, match=r"os\.system"):
        registry.get("os.system")


def test_the_public_names_are_there():
    for name in django_txtasks.__all__:
        assert getattr(django_txtasks, name)
    with pytest.raises(AttributeError):
        django_txtasks.nothing  # noqa: B018


def test_errors_are_also_the_builtin_they_are():
    assert issubclass(exceptions.InvalidArguments, ValueError)
    assert issubclass(exceptions.UnknownTask, LookupError)
    assert issubclass(exceptions.NotATask, TypeError)
    assert issubclass(exceptions.ConfigError, ImproperlyConfigured)


# -- TXTASKS --------------------------------------------------------------------------------------


def test_defaults_are_those_of_the_documentation():
    config = parse({})
    assert config == Config()
    assert (config.lease, config.heartbeat_interval) == (
        timedelta(seconds=15),
        timedelta(seconds=1),
    )


def test_an_error_lists_each_key_once():
    assert sorted(KEYS) == sorted(field.name for field in dataclasses.fields(Config))


def test_the_core_alone_takes_its_own_settings_only():
    assert type(parse_as(CoreConfig, {"lease": 20})) is CoreConfig
    with pytest.raises(ConfigError, match="unknown key 'lanes'"):
        parse_as(CoreConfig, {"lanes": {}})


def test_numbers_are_seconds():
    assert parse({"lease": 20, "heartbeat_interval": timedelta(seconds=2)}).lease == timedelta(
        seconds=20
    )


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"broker_ulr": "x"}, "unknown key 'broker_ulr'. Did you mean 'broker_url'"),
        ({"xyz": 1}, "Known keys: broker_url"),
        ([], "TXTASKS is list"),
        ({"lease": "15"}, "use seconds"),
        ({"lease": True}, "use seconds"),
        ({"heartbeat_interval": 0}, "longer than zero"),
        ({"heartbeat_interval": -1}, "longer than zero"),
        ({"lease": 2}, "a lease shorter than 3 beats"),
        ({"hint_give_up_after": 1}, "shorter than TXTASKS['hint_retry_interval']"),
        ({"retry_ceiling": 1}, "shorter than TXTASKS['retry_base']"),
        ({"queues": "default"}, "must be a list"),
        ({"queues": []}, "at least one"),
        ({"queues": ["a", "a"]}, "each once"),
        ({"queues": ["a@b"]}, "no '@'"),
        ({"queues": [1]}, "must be a list of names"),
        ({"queue_prefix": ""}, "1 to 50"),
        ({"broker_url": "redis://localhost"}, "must look like amqp://"),
        ({"broker_url": "amqp://u:secret@h:port/"}, "must look like amqp://"),
    ],
    ids=str,
)
def test_a_wrong_setting_is_an_error_that_says_what_to_do(setting, says):
    with pytest.raises(ConfigError) as caught:
        parse(setting)
    assert says in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_changed_setting_is_read_anew():
    with override_settings(TXTASKS={"lease": 99}):
        assert get_config().lease == timedelta(seconds=99)
    assert get_config().lease != timedelta(seconds=99)


# -- backoff --------------------------------------------------------------------------------------


def test_a_projects_own_random_numbers_and_the_jitter_leave_each_other_alone():
    base, waits = timedelta(seconds=10), set()
    for _ in range(10):
        random.seed(1)
        before = random.getstate()
        waits.add(backoff(1, base=base, ceiling=base))
        assert random.getstate() == before
    assert len(waits) > 1


def test_backoff_doubles_up_to_its_ceiling_and_keeps_at_least_half():
    base, ceiling = timedelta(seconds=5), timedelta(hours=1)
    for failures in (1, 2, 3, 8, 20, 10_000):
        full = min(5 * 2 ** min(failures - 1, 100), 3600)
        waits = {backoff(failures, base=base, ceiling=ceiling).total_seconds() for _ in range(50)}
        assert full / 2 <= min(waits) <= max(waits) <= full
        assert len(waits) > 1


def test_backoff_follows_a_failure():
    with pytest.raises(ValueError, match="starts at 1"):
        backoff(0, base=timedelta(1), ceiling=timedelta(1))


# -- system checks --------------------------------------------------------------------------------


def ids(found):
    return {message.id for message in found}


def test_the_projects_own_settings_pass():
    assert ids(checks.check_settings() + checks.check_databases()) <= {"txtasks.W011"}


def test_a_wrong_setting_is_found(settings):
    settings.TXTASKS = {"leese": 1}
    assert ids(checks.check_settings()) == {"txtasks.E001"}


def test_a_task_for_a_queue_that_is_not_served_is_found(settings):
    settings.TXTASKS = {"queues": ["default"]}
    found = checks.check_settings()
    assert ids(found) == {"txtasks.E002"}
    assert {one.msg.split()[0] for one in found} == {"probe.framework.mail", "probe.tasks.mail"}


def test_naive_times_are_found(settings):
    settings.USE_TZ = False
    assert "txtasks.E003" in ids(checks.check_settings())


@pytest.fixture
def entry():
    """DATABASES['default'], to be bent and put back."""
    options, zone = (
        dict(connection.settings_dict["OPTIONS"]),
        connection.settings_dict.get("TIME_ZONE"),
    )
    yield connection.settings_dict
    connection.settings_dict["OPTIONS"], connection.settings_dict["TIME_ZONE"] = options, zone


def test_another_time_zone_in_the_database_is_found(entry):
    entry["TIME_ZONE"] = "Europe/Berlin"
    assert "txtasks.E005" in ids(checks.check_databases())


BENT = {
    "sqlite": [
        ({"transaction_mode": None}, "txtasks.E009"),
        ({"transaction_mode": "DEFERRED"}, "txtasks.E009"),
        ({"timeout": 100}, "txtasks.E010"),
        ({}, "txtasks.W011"),
    ],
    "mysql": [({"isolation_level": "repeatable read"}, "txtasks.E012")],
    "postgresql": [],
}


def test_what_would_break_the_promise_on_this_database_is_found(entry):
    before = dict(entry["OPTIONS"])
    for options, problem in BENT[connection.vendor]:
        entry["OPTIONS"] = {**before, **options}
        assert problem in ids(checks.check_databases())


@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="these are options of SQLite")
def test_all_options_that_a_new_site_with_sqlite_needs_are_named_at_once(entry):
    entry["OPTIONS"] = {"timeout": 1}
    (found,) = [one for one in checks.check_databases() if one.id == "txtasks.E009"]
    assert "'transaction_mode': 'IMMEDIATE', 'init_command': 'PRAGMA journal_mode=WAL" in found.hint
    assert "timeout" not in found.hint


def test_an_unknown_alias_is_found():
    assert ids(checks.check_tables(databases=["nowhere"])) == {"txtasks.E006"}


def test_a_database_without_the_table_is_found(rows):
    assert checks.check_tables(databases=["default"]) == []
    with connection.schema_editor() as editor:
        editor.execute("ALTER TABLE txtasks_task RENAME TO txtasks_away")
    try:
        assert ids(checks.check_tables(databases=["default"])) == {"txtasks.W029"}
        assert ids(checks.refusals("default")) == {"txtasks.E008"}
    finally:
        with connection.schema_editor() as editor:
            editor.execute("ALTER TABLE txtasks_away RENAME TO txtasks_task")


def test_a_database_that_is_too_old_is_found(rows, monkeypatch):
    monkeypatch.setattr(checks, "OLDEST", dict.fromkeys(checks.OLDEST, (99,)))
    assert "txtasks.E007" in ids(checks.check_tables(databases=["default"]))


def test_a_server_that_is_down_is_no_finding(rows, entry):
    port, name = entry["PORT"], entry["NAME"]
    connections["default"].close()
    entry["PORT"], entry["NAME"] = "1", "/nowhere/at/all" if connection.vendor == "sqlite" else name
    try:
        assert checks.check_tables(databases=["default"]) == []
    finally:
        entry["PORT"], entry["NAME"] = port, name
        connections["default"].close()


def test_no_migration_is_missing(rows):
    call_command("makemigrations", "txtasks", check=True, dry_run=True, verbosity=0)


@pytest.mark.parametrize(
    ("name", "value", "place"),
    [
        ("TENANT_APPS", ["shop", "django_txtasks"], "TENANT_APPS"),
        ("TENANT_APPS", ("django_txtasks.apps.TxTasksConfig",), "TENANT_APPS"),
        (
            "TENANT_TYPES",
            {"public": {"APPS": ["django_txtasks"]}, "shop": {"APPS": ["django_txtasks"]}},
            "TENANT_TYPES['shop']",
        ),
    ],
)
def test_task_tables_in_the_schema_of_each_tenant_are_an_error(name, value, place, settings):
    setattr(settings, name, value)
    [found] = [one for one in checks.check_settings() if one.id == "txtasks.E035"]
    assert place in found.msg and "SHARED_APPS" in found.hint


def test_task_tables_in_the_shared_schema_are_no_error(settings):
    settings.SHARED_APPS = ["django_tenants", "django_txtasks"]
    settings.TENANT_APPS = ["shop", "django_txtasks_extras"]
    settings.TENANT_TYPES = {"public": {"APPS": ["django_txtasks"]}}
    assert "txtasks.E035" not in ids(checks.check_settings())
