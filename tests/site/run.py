"""Run a site with django-tenants, Sentry, gunicorn, uWSGI and uvicorn, and see that its tasks keep their promises.

    tox -e site

Each server enqueues tasks in transactions of two tenants. Then: each receipt is in its tenant's schema; later
tasks see neither a tenant nor a tag of Sentry; each event has its own task's tag; hints of each server start tasks
long before a scan would, also from processes that were forked after an enqueue; nothing that was rolled back runs;
and a killed worker's atomic task runs again, once. Before that, gunicorn and uWSGI start workers as the
documentation says: there is one supervisor, which can be renewed, and which ends with the server.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Set
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

HERE = Path(__file__).resolve().parent
TENANTS = ("acme", "globex")
SOON_SECONDS = 30.0  # half of the poll_interval: only a hint starts a task within it
SERVERS = {
    "gunicorn": "-m gunicorn site_wsgi:wsgi --preload --workers 2 --threads 2 --bind 127.0.0.1:{port}",
    "uwsgi": "uwsgi --http-socket 127.0.0.1:{port} --module site_wsgi:wsgi --master --processes 2"
    " --enable-threads --die-on-term --need-app --py-call-uwsgi-fork-hooks",  # see docs/how-to/deployment.md
    "uvicorn": "-m uvicorn site_pages:asgi --lifespan off --workers 2 --port {port}",
}


def wait_until(found: Callable[[], Any], what: str, seconds: float = 120.0) -> Any:
    """Return the first true result."""
    end = time.monotonic() + seconds
    while not (value := found()):
        if time.monotonic() > end:
            raise SystemExit(f"FAILED: {what} not within {seconds:g} s")
        time.sleep(0.05)
    return value


@contextmanager
def database() -> Iterator[None]:
    """Create a database of its own, and name it in the environment."""
    url = urlsplit(os.environ["TXTASKS_TEST_POSTGRES_URL"])
    name = f"site_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(url.geturl(), autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}"')  # type: ignore[arg-type]
        os.environ["SITE_DATABASE_URL"] = url._replace(path=f"/{name}").geturl()
        try:
            yield
        finally:
            admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')  # type: ignore[arg-type]


@contextmanager
def process(command: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in a group of its own, and end all of the group."""
    words = shlex.split(command)
    program = [sys.executable, *words] if words[0] == "-m" or words[0].endswith(".py") else words
    if program is words:
        program = [str(Path(sys.executable).with_name(words[0])), *words[1:]]
    with log.open("ab") as file:
        child = subprocess.Popen(
            program, cwd=HERE, stdout=file, stderr=file, start_new_session=True
        )
    try:
        yield child
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)


def one_worker(but: Set[int] = frozenset()) -> set[int]:
    """Wait until one worker and one cleaner are there, which are none of ``but``; return both process ids."""
    from django_txtasks.models import Cleaner, Worker

    def look() -> set[int] | None:
        found = [*Worker.objects.values_list("pid", flat=True)]
        found += Cleaner.objects.values_list("pid", flat=True)
        return set(found) if len(found) == 2 and not set(found) & but else None

    return set(wait_until(look, "one worker and one cleaner are there"))


def no_worker() -> None:
    from django_txtasks.models import Cleaner, Worker

    def look() -> bool:
        return not Worker.objects.exists() and not Cleaner.objects.exists()

    wait_until(look, "no worker and no cleaner are there")


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def start_beside(logs: Path) -> None:
    """Let gunicorn and uWSGI start the workers, by the settings that the documentation has for them."""
    page = (HERE.parents[1] / "docs/how-to/beside-the-web-server.md").read_text()
    (hooks,) = re.findall(r"```python\n(# gunicorn\.conf\.py\n.+?)```", page, re.DOTALL)
    (daemon,) = re.findall(r"^attach-daemon2 = (.+)$", page, re.MULTILINE)
    (logs / "gunicorn.conf.py").write_text(hooks)
    daemon = daemon.replace("/srv/shop/.venv/bin/python", sys.executable)
    commands = {
        "gunicorn": f"{SERVERS['gunicorn']} --config {logs}/gunicorn.conf.py",
        "uwsgi": f"{SERVERS['uwsgi']} --attach-daemon2 '{daemon}'",
    }
    for server, command in commands.items():
        with process(command.format(port=free_port()), logs / f"beside-{server}.log") as master:
            first = one_worker()
            if server == "gunicorn":
                master.send_signal(signal.SIGHUP)
            else:  # pyuwsgi cannot start itself again, as uWSGI does at SIGHUP
                os.kill(parent_of(min(first)), signal.SIGTERM)
            one_worker(but=first)
        no_worker()
        print(f"{server}: one supervisor beside it, which was renewed, and has ended with it")
    command = commands["gunicorn"].format(port=free_port())
    with process(command, logs / "beside-killed.log") as master:
        one_worker()
        master.kill()
        no_worker()
        print("gunicorn: its supervisor ends with a killed master")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=30) as answer:
        return str(answer.read().decode())


def answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def enqueue_from(server: str, logs: Path) -> None:
    """Enqueue from each process of a server; hints have to start all of it soon."""
    from django_txtasks.models import FinishedTask, Task

    port = free_port()
    with process(SERVERS[server].format(port=port), logs / f"{server}.log"):
        wait_until(lambda: answers(port), f"{server} listens")
        ids, began = [], time.monotonic()
        for number in range(12):
            name = ("careless", "careless_in_autocommit")[number % 2]
            ids.append(get(port, f"{TENANTS[number // 2 % 2]}/{server}/{name}"))
        undone = [get(port, f"{one}/{server}/careless?undo=1") for one in TENANTS]
        done = FinishedTask.objects.filter(pk__in=ids)
        wait_until(lambda: done.count() == len(ids), f"tasks of {server} are done", SOON_SECONDS)
        print(f"{server}: {len(ids)} tasks done in {time.monotonic() - began:.1f} s")
        assert not FinishedTask.objects.filter(pk__in=undone).exists(), "rolled back, and yet run"
        assert not Task.objects.filter(pk__in=undone).exists(), "rolled back, and yet there"


def see_no_leak() -> None:
    """Let later tasks look for leftovers of earlier ones."""
    from shop import tasks

    handles = [tasks.whose.enqueue() for _ in range(16)]
    seen = [tuple(one.result(timeout=SOON_SECONDS)) for one in handles]
    assert set(seen) == {("public", "public")}, f"tenants have leaked: {set(seen)}"


def check_receipts() -> None:
    from django_tenants.utils import schema_context
    from shop.models import Order, Receipt

    for schema in TENANTS:
        with schema_context(schema):
            receipts = list(Receipt.objects.all())
            assert {one.schema for one in receipts} == {schema}
            assert sorted(one.order_id for one in receipts) == sorted(
                Order.objects.values_list("pk", flat=True)
            ), f"{schema}: not one receipt for each order"
            print(f"{schema}: {len(receipts)} receipts, one for each order")


def check_events(file: Path) -> None:
    """Compare the tags of Sentry's events with their tasks."""
    from shop import tasks

    for schema in TENANTS:
        tasks.fail.enqueue(schema)
    told = f"failure of {TENANTS[-1]}"
    wait_until(
        lambda: file.exists() and told in file.read_text(), "Sentry hears of deaths", SOON_SECONDS
    )
    see_no_leak()
    events = [json.loads(line) for line in file.read_text().splitlines()]
    for one in events:
        tenant = (one["tags"] or {}).get("tenant")
        if one["exception"]:
            value = one["exception"]["values"][-1]["value"]
            assert value == f"failure of {tenant}", f"{value} is tagged {tenant}"
        else:
            assert tenant is None, f"{one['message']} is tagged {tenant}"
    print(f"Sentry: {len(events)} events, each with its own tag")


def kill_in_mid_task(directory: Path) -> None:
    """Kill the process of a worker while an atomic task runs."""
    from django.db import transaction
    from django_tenants.utils import schema_context
    from shop import tasks
    from shop.models import Order, Receipt

    file = directory / "pid"
    with schema_context("acme"), transaction.atomic():
        order = Order.objects.create(server="killed")
        handle = tasks.slow.enqueue("acme", order.pk, str(file))
    pid = int(
        wait_until(lambda: file.exists() and file.read_text(), "the slow task runs", SOON_SECONDS)
    )
    os.kill(pid, signal.SIGKILL)
    handle.result(timeout=120)
    with schema_context("acme"):
        [receipt] = Receipt.objects.filter(order_id=order.pk)
    assert receipt.attempt == 2, receipt.attempt
    print("kill: the atomic task ran again, and has one effect")


def main() -> None:
    os.chdir(HERE)
    sys.path.insert(0, str(HERE))
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="txtasks-site-")))
        os.environ.update(
            DJANGO_SETTINGS_MODULE="site_settings",
            SITE_BROKER_URL=os.environ["TXTASKS_TEST_AMQP_URL"],
            SITE_PREFIX=f"site_{uuid.uuid4().hex[:8]}",
            SITE_EVENTS=str(directory / "events"),
            PYTHONPATH=os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
        )
        stack.enter_context(database())
        try:
            run(stack, directory)
        except BaseException:
            for log in sorted(directory.glob("*.log")):
                print(f"--- {log.name}\n{log.read_text()[-6000:]}", file=sys.stderr)
            raise


def run(stack: ExitStack, directory: Path) -> None:
    subprocess.run([sys.executable, "manage.py", "migrate_schemas", "-v0"], check=True)
    import django

    django.setup()
    from customers.models import Client
    from django.core.management import call_command
    from django.db import connections

    for schema in ("public", *TENANTS):
        Client(schema_name=schema, name=schema).save(verbosity=0)
    call_command("check")
    start_beside(directory)
    workers = process("manage.py runworkers --processes 1 --threads 2", directory / "workers.log")
    stack.enter_context(workers)
    for server in SERVERS:
        enqueue_from(server, directory)
        see_no_leak()
    check_events(directory / "events")
    kill_in_mid_task(directory)
    check_receipts()
    connections.close_all()
    print("all is as promised")


if __name__ == "__main__":
    main()
