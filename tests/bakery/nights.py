"""Incidents 10 to 23: what went wrong at night at a site. ``incidents.md`` has the expected answers."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from datetime import timedelta
from typing import Any

from bakery.site import Site, enqueue, live, wait_for


def workers_die_in_a_loop(site: Site) -> None:
    from bakery import tasks

    site.work()
    enqueue(tasks.take_order, 20)
    enqueue(tasks.resize_photo, 300)
    wait_for(lambda: _of("resize_photo", crashes__gt=0) > 3)


def a_slow_service_has_all_threads(site: Site) -> None:
    from bakery import tasks

    site.work()
    enqueue(tasks.ask_bank, 9)
    wait_for(lambda: live(status="claimed") == 4)
    enqueue(tasks.take_order, 20)


def the_database_takes_no_writes(site: Site) -> None:
    from bakery import tasks

    site.work()
    enqueue(tasks.take_order, 20)
    wait_for(lambda: live() == 0)
    enqueue(tasks.take_order, 20)
    write_nothing(on=True)


def history_fills_the_disk(site: Site) -> None:
    import secrets

    from bakery import tasks
    from django_txtasks import enqueue_many

    site.work("--threads=8")
    for _ in range(8):
        enqueue_many([(tasks.keep_receipt, [secrets.token_hex(4000)]) for _ in range(1000)])
        wait_for(lambda: live() == 0)


def a_person_turned_a_schedule_off(site: Site) -> None:
    from django.contrib.admin.models import LogEntry
    from django.contrib.auth import get_user_model
    from django.test import Client
    from django.utils import timezone

    from django_txtasks.models import Schedule

    worker = site.work(release="a")
    wait_for(lambda: Schedule.objects.filter(name="stock").exists())
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("ada"))
    client.post("/admin/txtasks/schedule/", {"action": "turn_off", "_selected_action": "stock"})
    assert not Schedule.objects.get(name="stock").enabled
    LogEntry.objects.update(action_time=timezone.now() - timedelta(days=3))
    assert worker.poll() is None


def the_cleaner_is_frozen(site: Site) -> None:
    from bakery import tasks
    from django_txtasks.models import Cleaner, Worker

    site.work("--no-cleaner")
    site.start("runcleaner")
    wait_for(lambda: Cleaner.objects.filter(passed_at__isnull=False).exists())
    tasks.rebuild_search_index.enqueue()
    wait_for(lambda: live(status="claimed") == 1)
    os.kill(Cleaner.objects.get().pid, signal.SIGSTOP)
    os.kill(Worker.objects.get().pid, signal.SIGKILL)
    wait_for(lambda: Worker.objects.count() == 2)
    time.sleep(10)  # some leases: the cleaner's row is old enough


def a_task_ran_twice(site: Site) -> None:
    """The baker says: the sales of 2026-11-27 were mailed to me twice."""
    from bakery import tasks
    from django_txtasks.models import FinishedTask, Task, Worker

    site.work()
    tasks.add_up_sales.enqueue("2026-11-27")
    wait_for(lambda: Task.objects.filter(status="claimed").exists())
    os.kill(Worker.objects.get(pk=Task.objects.get().worker).pid, signal.SIGKILL)
    wait_for(FinishedTask.objects.exists)
    enqueue(tasks.take_order, 20)
    wait_for(lambda: live() == 0)


def an_order_is_lost(site: Site) -> None:
    """The customer says: I paid order 31 yesterday, and nothing came."""
    from django.contrib.auth import get_user_model
    from django.test import Client

    from bakery import tasks
    from django_txtasks import enqueue_task
    from django_txtasks.models import Task

    customer = get_user_model().objects.create(pk=31, username="order-31")
    site.work()
    one = enqueue_task(tasks.ship_order.using(subject=customer, max_attempts=1), 31)
    for number in range(32, 40):
        other = get_user_model().objects.create(pk=number, username=f"order-{number}")
        enqueue_task(tasks.ship_order.using(subject=other), number, street="Rose Lane 3")
    wait_for(lambda: live(status="dead") == 1 and live() == 1)
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("ada"))
    chosen = {
        "action": "discard",
        "index": "0",
        "_selected_action": str(one.id),
        "confirmed": "yes",
    }
    client.post("/admin/txtasks/task/", chosen)
    assert not Task.objects.filter(pk=one.id).exists()


def each_receipt_fails(site: Site) -> None:
    from bakery import tasks

    site.work()
    enqueue(tasks.take_order, 200)
    enqueue(tasks.print_receipt, 7)
    wait_for(lambda: live(status="dead") == 7 and live() == 7)


def orders_are_due_in_the_wrong_time_zone(site: Site) -> None:
    """The baker says: the orders of this morning do not run, and nothing is red."""
    from bakery import tasks
    from django_txtasks import enqueue_many

    site.work()
    late = tasks.take_order.using(run_after=timedelta(hours=2))
    enqueue_many([(late, [number]) for number in range(25)])


def another_system_is_away(site: Site) -> None:
    from bakery import tasks

    site.work()
    site.start("rundrain")
    enqueue(tasks.publish_order, 30)
    time.sleep(15)


def rabbitmq_hangs(site: Site) -> None:
    from bakery import tasks
    from django_txtasks.models import Worker

    site.work()
    wait_for(lambda: Worker.objects.filter(listening=True, will__gt=0).exists())
    time.sleep(5)  # longer than a lease, in which a new worker has time to connect
    for pid in _broker_pids(site):
        os.kill(pid, signal.SIGSTOP)
    enqueue(tasks.take_order, 5)
    time.sleep(20)


def a_payment_never_came(site: Site) -> None:
    """The customer says: I paid order 31, and nothing came."""
    from django.contrib.auth import get_user_model

    from bakery import tasks
    from django_txtasks import enqueue_task

    customer = get_user_model().objects.create(pk=31, username="order-31")
    site.work()
    enqueue(tasks.take_order, 20)
    enqueue_task(tasks.ship_when_paid.using(subject=customer), 31)
    wait_for(lambda: live() == live(status="pending") == 1 and _of("ship_when_paid", attempt__gt=0))


def a_partner_answers_503(site: Site) -> None:
    from bakery import tasks

    site.work()
    enqueue(tasks.take_order, 200)
    enqueue(tasks.tell_partner, 150)
    wait_for(lambda: _of("tell_partner", failures__gt=0) == 150)


INCIDENTS = (
    workers_die_in_a_loop, a_slow_service_has_all_threads, the_database_takes_no_writes, history_fills_the_disk,
    a_person_turned_a_schedule_off, the_cleaner_is_frozen, a_task_ran_twice, an_order_is_lost, each_receipt_fails,
    orders_are_due_in_the_wrong_time_zone, another_system_is_away, rabbitmq_hangs, a_payment_never_came,
    a_partner_answers_503,
)  # fmt: skip
WITH_BROKER = frozenset({8, 10 + INCIDENTS.index(rabbitmq_hangs)})
"""Numbers of the incidents that need a RabbitMQ of their own."""
WITH_SCHEDULES = frozenset({10 + INCIDENTS.index(a_person_turned_a_schedule_off)})

SETTINGS: dict[int, dict[str, Any]] = {
    10 + INCIDENTS.index(history_fills_the_disk): {"database_budget": {"history_mb_per_day": 40}}
}
"""What the settings of an incident have beside those of the demo."""


def write_nothing(*, on: bool) -> None:
    """Let new sessions of the whole server be read-only, or end this."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = off")
        cursor.execute(f"ALTER SYSTEM SET default_transaction_read_only = {'on' if on else 'off'}")
        cursor.execute("SELECT pg_reload_conf()")


def thaw(site: Site) -> None:
    """Let the broker go on."""
    if site.broker is not None:
        for pid in _broker_pids(site):
            os.kill(pid, signal.SIGCONT)


def _broker_pids(site: Site) -> list[int]:
    directory = str(site.broker.home.path)
    found = subprocess.run(["pgrep", "-f", directory], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split() if int(line) != os.getpid()]


def _of(name: str, **columns: Any) -> int:
    return live(task_name=f"bakery.tasks.{name}", **columns)
