"""Stage one of 23 incidents at a real site, and wait: for people who shall find its cause without the source.

    python tests/services.py -- python tests/incidents.py N

N = 1 to 23. ``incidents.md`` has the incidents and the expected answers. The site is a bakery's shop with
PostgreSQL, the admin, and real workers and cleaners. Ctrl-C or SIGTERM ends and removes everything.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "testproject")]

from bakery import nights  # noqa: E402
from bakery.site import NEW, OLD, Site, enqueue, live, wait_for  # noqa: E402

USER = PASSWORD = "operator"
SETTINGS: dict[int, dict[str, Any]] = {
    6: {"long_running_after": 20},
    8: {"database_hints": False, "poll_interval": 20},
    **nights.SETTINGS,
}
"""What the settings of an incident have beside those of the demo."""


def nobody_serves_a_queue(site: Site) -> None:
    from bakery import tasks

    site.work("--queue=default", "--queue=reports")
    enqueue(tasks.take_order, 20)
    enqueue(tasks.send_mail, 30)
    wait_for(lambda: live(status="pending") == 30)


def a_queue_is_paused(site: Site) -> None:
    from bakery import tasks
    from django.contrib.auth import get_user_model
    from django.test import Client

    site.work()
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("ada"))
    form = {"queue_name": "mail", "reason": "the mail provider moves today"}
    assert client.post("/admin/txtasks/pausedqueue/add/", form).status_code == 302
    enqueue(tasks.send_mail, 25)


def a_deploy_has_renamed_a_function(site: Site) -> None:
    from bakery import tasks

    site.stop(site.work(release=OLD))
    enqueue(tasks.send_bill, 20)
    site.work()


def a_release_fails(site: Site) -> None:
    from bakery import tasks

    old = site.work(release=OLD)
    enqueue(tasks.charge_card, 40, "rye bread")
    wait_for(lambda: live() == 0)
    site.stop(old)
    site.work()
    enqueue(tasks.charge_card, 60, "roll")
    enqueue(tasks.charge_card, 200, "rye bread")
    wait_for(lambda: live(status="dead") == 200)


def a_lane_is_full(site: Site) -> None:
    from bakery import tasks

    site.work()
    tasks.print_label.enqueue(0, out_of_paper=True)
    wait_for(lambda: live(status="claimed") == 1)
    enqueue(tasks.print_label, 12)


def a_task_runs_too_long(site: Site) -> None:
    from bakery import tasks

    site.work()
    tasks.rebuild_search_index.enqueue()
    enqueue(tasks.take_order, 20)
    wait_for(lambda: live() == 1)
    time.sleep(SETTINGS[6]["long_running_after"])


def no_cleaner_runs(site: Site) -> None:
    from bakery import tasks

    from django_txtasks.models import Worker

    site.work("--no-cleaner")
    tasks.rebuild_search_index.enqueue()
    wait_for(lambda: live(status="claimed") == 1)
    os.kill(Worker.objects.get().pid, signal.SIGKILL)
    wait_for(lambda: Worker.objects.count() == 2)  # its supervisor starts another
    enqueue(tasks.take_order, 20)
    wait_for(lambda: live() == 1)


def rabbitmq_is_down(site: Site) -> None:
    from bakery import tasks

    from django_txtasks.models import Worker

    site.work()
    wait_for(lambda: Worker.objects.filter(listening=True, will__gt=0).exists())
    time.sleep(5)  # longer than a lease, in which a new worker has time to connect
    site.broker.stop()
    wait_for(lambda: Worker.objects.filter(listening=False).exists())
    enqueue(tasks.take_order, 10)


def a_schedule_has_lost_its_function(site: Site) -> None:
    from bakery import tasks

    site.work()
    enqueue(tasks.take_order, 20)
    wait_for(lambda: live() == 0)


INCIDENTS: tuple[Callable[[Site], None], ...] = (
    nobody_serves_a_queue, a_queue_is_paused, a_deploy_has_renamed_a_function, a_release_fails, a_lane_is_full,
    a_task_runs_too_long, no_cleaner_runs, rabbitmq_is_down, a_schedule_has_lost_its_function,
    *nights.INCIDENTS,
)  # fmt: skip


@contextmanager
def site_of(number: int) -> Iterator[tuple[str, Site]]:
    """Stage an incident, and give the address of its site, where ``USER`` may do everything."""
    from demo.stage import free_port, prepare, stage
    from services import RabbitMQ

    with RabbitMQ() if number in nights.WITH_BROKER else nullcontext() as broker:
        postgres, amqp = os.environ["TXTASKS_TEST_POSTGRES_URL"], broker and broker.url
        environment = prepare(database_url=postgres, broker_url=amqp)
        more = json.loads(environment["TXTASKS_SETTINGS"])
        more |= {
            "sync_schedules": number in nights.WITH_SCHEDULES | {9},
            **SETTINGS.get(number, {}),
        }
        os.environ |= environment | {
            "TXTASKS_SETTINGS": json.dumps(more), "DJANGO_SETTINGS_MODULE": "bakery.settings",
            "BAKERY_RELEASE": OLD, "PYTHONPATH": os.pathsep.join(sys.path[:2]),
        }  # fmt: skip
        import django

        django.setup()
        from django.contrib.auth import get_user_model

        with stage() as processes:
            site = Site(processes, broker)
            get_user_model().objects.create_superuser(USER, password=PASSWORD)
            address = f"127.0.0.1:{free_port()}"
            try:
                site.start("runserver", address, "--noreload", "--insecure")
                cookie = _cookie()
                INCIDENTS[number - 1](site)
                wait_for(lambda: _answers(f"http://{address}/admin/login/"))
                yield f"http://{address}/admin/txtasks/overview/  Cookie: sessionid={cookie}", site
            finally:
                nights.write_nothing(on=False)
                nights.thaw(site)
                if broker is not None and number == 8:  # the stage removes its queues there
                    broker.launch()
                    broker.wait_until_ready()


def _cookie() -> str:
    """Return the cookie of a session of ``USER``, who has logged in before the incident."""
    from django.contrib.auth import get_user_model
    from django.test import Client

    client = Client()
    client.force_login(get_user_model().objects.get(username=USER))
    return client.cookies["sessionid"].value


def _program() -> Path:
    """Write a program that runs ``manage.py`` of the site."""
    from demo.stage import ROOM

    path = Path(os.environ[ROOM]) / "manage"
    names = ("PYTHONPATH", "DJANGO_SETTINGS_MODULE", "BAKERY_RELEASE")
    kept = {key: value for key, value in os.environ.items() if key in names or "TXTASKS" in key}
    words = [
        f"{key}={shlex.quote(value)}" for key, value in (kept | {"BAKERY_RELEASE": NEW}).items()
    ]
    manage = shlex.quote(str(HERE.parent / "testproject" / "manage.py"))
    path.write_text(
        f'#!/bin/sh\nexec env {" ".join(words)} {shlex.quote(sys.executable)} {manage} "$@"\n'
    )
    path.chmod(0o755)
    return path


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=2).close()  # noqa: S310 -- our own http server
    except OSError:
        return False
    return True


def _leave(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> None:
    numbers = [str(one + 1) for one in range(len(INCIDENTS))]
    if sys.argv[1:] not in [[one] for one in numbers]:
        sys.exit(__doc__)
    signal.signal(signal.SIGTERM, _leave)
    try:
        with site_of(int(sys.argv[1])) as (address, _):
            print(f"{address}  user {USER}, password {PASSWORD}. Ctrl-C ends.", flush=True)
            print(f"Commands of the site: {_program()} txtasks_status", flush=True)
            while True:
                signal.pause()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
