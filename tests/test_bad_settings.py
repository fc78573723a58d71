"""Settings that cannot work are refused with a remedy; extreme settings that can work have their effect."""

import re
import runpy
import uuid
from datetime import timedelta
from pathlib import Path

import helpers
import pytest
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection
from django.utils import timezone
from probe import tasks

from django_txtasks import checks, enqueue_task, migrations
from django_txtasks.backends.compat import InvalidTask
from django_txtasks.conf import get_config, parse
from django_txtasks.core.cleaning.cleaner import Cleaner
from django_txtasks.exceptions import ConfigError, InvalidDeclaration
from django_txtasks.models import Batch, EndedWorker, FinishedTask

ROOT = Path(__file__).parents[1]


# -- durations


@pytest.mark.once
@pytest.mark.parametrize("key", ["keep_finished", "lease", "long_running_after"])
@pytest.mark.parametrize(
    "value",
    [timedelta.max, timedelta(days=36526), 1e20, -1e20, float("inf"), float("nan")],
    ids=str,
)
def test_a_duration_that_no_database_can_reckon_with_is_refused(key, value):
    with pytest.raises(ConfigError, match=rf"^TXTASKS\['{key}'\] is .*100 years at most"):
        parse({key: value})


@pytest.mark.once
@pytest.mark.parametrize("mail", [None, 5, "ops@example.com", ["ops"]])
def test_recipients_that_are_no_list_of_addresses_are_refused(mail):
    with pytest.raises(ConfigError, match="must be a list of addresses"):
        parse({"dead_notices": {"mail": mail}})


@pytest.mark.once
@pytest.mark.parametrize(
    ("queue", "prefix"),
    [
        ("請" * 90, "txtasks"),
        ("請" * 83, "txtasks"),
        ("é" * 100, "é" * 30),
        ("\U0001f40c" * 62, "txtasks"),
    ],
)
def test_a_queue_whose_name_rabbitmq_cannot_take_is_refused(queue, prefix):
    setting = {"queues": ["default", queue], "queue_prefix": prefix}
    assert queue in parse(setting).queues  # without a broker it is a name like others
    with pytest.raises(ConfigError, match=r"bytes in RabbitMQ, which takes 255. Shorten one"):
        parse({**setting, "broker_url": "amqp://localhost/"})
    assert parse({**setting, "broker_url": "amqp://localhost/", "queues": [queue[:60]]})


@pytest.mark.once
def test_only_what_is_kept_may_be_kept_for_ever():
    assert parse({"keep_finished": None}).keep_finished is None
    with pytest.raises(ConfigError, match="use seconds"):
        parse({"lease": None})


@pytest.mark.parametrize(
    ("keep", "left"),
    [(None, 2), (timedelta(days=36525), 2), (3600, 1)],
    ids=["for ever", "the longest", "an hour"],
)
def test_a_cleaner_prunes_what_is_older_than_it_is_kept(rows, txtasks, keep, left):
    txtasks(keep_finished=keep)
    with helpers.working():
        ids = [enqueue_task(tasks.note).id for _ in range(2)]
        helpers.wait_until(lambda: helpers.counts()["finished"] == 2)
    old = FinishedTask.objects.filter(pk=ids[0])
    old.update(finished_at=old.get().finished_at - timedelta(days=30_000))
    counts = Cleaner(get_config(), "default").run_once()
    assert (counts["pruned"], helpers.counts()["finished"]) == (2 - left, left)


def test_each_queue_may_keep_for_a_time_of_its_own(rows, txtasks):
    txtasks(
        queues=["default", "mail", "log"], keep_finished={"default": 3600, "mail": None, "*": 0}
    )
    config = get_config()
    assert config.retention.longest == timedelta(hours=1)
    assert config.keeps("succeeded")
    with helpers.working():
        for queue in ("default", "mail", "log"):
            for _ in range(2):
                enqueue_task(tasks.note.using(queue_name=queue))
        helpers.wait_until(lambda: helpers.counts()["finished"] == 6)
    for queue in ("default", "mail"):
        old = FinishedTask.objects.filter(queue_name=queue).first()
        FinishedTask.objects.filter(pk=old.pk).update(
            finished_at=old.finished_at - timedelta(days=9)
        )
    counts = Cleaner(config, "default").run_once()
    left = sorted(FinishedTask.objects.values_list("queue_name", flat=True))
    assert (counts["pruned"], left) == (3, ["default", "mail", "mail"])


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        ({"default": None, "*": 3600}, 0),
        ({"default": 3600, "*": None}, 0),
        ({"default": None, "*": 0}, 0),
        ({"default": None, "*": 30 * 86400}, 1),
        (None, 1),
    ],
)
def test_a_queue_that_is_kept_for_ever_keeps_no_ended_batches_and_workers(
    rows, txtasks, keep, left
):
    txtasks(queues=["default", "mail"], keep_finished=keep)
    old = timezone.now() - timedelta(days=9)
    Batch(id=uuid.uuid4(), name="b", created_at=old, finished_at=old).save()
    EndedWorker(id=uuid.uuid4(), host="h", pid=1, started_at=old, ended_at=old).save()
    Cleaner(get_config(), "default").run_once()
    assert (Batch.objects.count(), EndedWorker.objects.count()) == (left, left)


@pytest.mark.once
@pytest.mark.parametrize(
    ("kept", "told"),
    [
        ({"default": 60}, "says nothing of the queue 'mail'"),
        ({"mial": None, "*": 60}, "names the queue 'mial'"),
        ({}, "dict has times"),
        ({5: 60}, "dict has times"),
        ({"*": "1 h"}, "use seconds"),
        ({"*": -1}, "longer than zero"),
    ],
    ids=str,
)
def test_times_by_queue_that_say_too_little_are_refused(kept, told):
    with pytest.raises(ConfigError, match=told):
        parse({"queues": ["default", "mail"], "keep_finished": kept})


@pytest.mark.once
def test_nothing_is_kept_where_no_queue_keeps():
    assert not parse({"keep_finished": {"*": 0}}).keeps("succeeded")


# -- databases


@pytest.fixture
def by_hand():
    """Transactions by hand on ``default``: no test needs a new connection meanwhile."""
    connection.settings_dict["AUTOCOMMIT"] = False
    yield
    connection.settings_dict["AUTOCOMMIT"] = True


@pytest.mark.once
def test_a_database_without_autocommit_is_found(by_hand):
    [found] = [one for one in checks.check_databases() if one.id == "txtasks.E022"]
    assert "AUTOCOMMIT" in found.msg
    assert "'default'" in found.hint


@pytest.mark.once
@pytest.mark.parametrize("command", ["runworkers", "runcleaner"])
def test_no_process_starts_on_a_database_without_autocommit(by_hand, command):
    with pytest.raises(SystemCheckError, match=r"txtasks\.E022"):
        call_command(command, skip_checks=False)


@pytest.mark.once
def test_the_documentation_names_the_oldest_versions_that_the_checks_take():
    shown = {"postgresql": "PostgreSQL", "mariadb": "MariaDB", "mysql": "MySQL", "sqlite": "SQLite"}
    pages = ["README.md", "docs/reference/supported.md", "docs/how-to/databases.md"]
    for page in pages:
        text = " ".join((ROOT / page).read_text().split())
        for product, version in checks.OLDEST.items():
            said = re.search(rf"(?:{shown[product]}|^Version)[ |]+(\d[\d.]*)(?: or newer|\+)", text)
            if said or page != "docs/how-to/databases.md":
                assert said[1] == ".".join(map(str, version)), (page, product)


# -- declarations in a script


@pytest.mark.once
@pytest.mark.parametrize(
    ("module", "error"),
    [("django_txtasks", InvalidDeclaration), ("django_txtasks.backends", InvalidTask)],
)
def test_a_task_of_the_script_that_was_started_is_refused(tmp_path, module, error):
    script = tmp_path / "import_orders.py"
    script.write_text(f"from {module} import task\n\n@task\ndef send():\n    pass\n")
    with pytest.raises(error, match=r"'__main__\.send' here.*Move the function to a module"):
        runpy.run_path(str(script), run_name="__main__")


# -- what nobody reads


@pytest.mark.once
@pytest.mark.parametrize("name", ["TXTASK", "TX_TASKS", "TXTASKS_LEASE", "TXTASKS_CLEAN_INTERVAL"])
def test_a_setting_that_is_nearly_ours_is_a_warning(settings, name):
    setattr(settings, name, {})
    [found] = [one for one in checks.check_settings() if one.id == "txtasks.W027"]
    assert name in found.msg and "TXTASKS" in found.hint


@pytest.mark.once
def test_a_setting_that_goes_into_ours_is_none(settings):
    settings.TXTASKS_LEASE = 20
    settings.TXTASKS = {**settings.TXTASKS, "lease": settings.TXTASKS_LEASE}
    assert not [one for one in checks.check_settings() if one.id == "txtasks.W027"]


@pytest.mark.once
@pytest.mark.parametrize("name", ["TASKS", "CELERY_TASKS", "TXTASKS_OF_MY_OWN", "TAXES"])
def test_other_settings_are_none(settings, name):
    setattr(settings, name, {})
    assert not [one for one in checks.check_settings() if one.id == "txtasks.W027"]


def test_a_migration_that_was_not_applied_is_a_warning_and_no_worker_waits_for_it(
    rows, tmp_path, monkeypatch
):
    """The next release has one migration more, and the database has the tables of this one."""
    assert not checks.check_migrations(databases=["default"])
    (tmp_path / "0002_of_the_next_release.py").touch()
    monkeypatch.setattr(migrations, "__path__", [*migrations.__path__, str(tmp_path)])
    [found] = checks.check_migrations(databases=["default"])
    assert found.id == "txtasks.W028" and "manage.py migrate --database default" in found.hint
    assert "0002_of_the_next_release" in found.msg and "0001_tables" not in found.msg
    assert not checks.check_tables(databases=["default"])
    assert not checks.refusals("default")
