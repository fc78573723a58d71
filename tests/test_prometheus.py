"""A real Prometheus reads the metrics of real processes; what ``deploy/`` has for it works."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import helpers
import pytest
import test_metrics
from django.core.wsgi import get_wsgi_application
from django.db import connections
from django.db.models import Sum
from django.urls import resolve
from prometheus import Prometheus, promtool
from servers import free_port

from django_txtasks import metrics
from django_txtasks.features.figures.adding_up import EVER
from django_txtasks.metrics import kept, names
from django_txtasks.models import RawStat, Schedule, Stat, Status, Task
from django_txtasks.operations import pausing

pytestmark = pytest.mark.once

DEPLOY = Path(__file__).parent.parent / "deploy"
ALERTS = (DEPLOY / "prometheus/alerts.yaml").read_text()
DASHBOARD = json.loads((DEPLOY / "grafana/txtasks.json").read_text())
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
WELL = {
    'txtasks_workers{state="alive"}': "2x70",
    'txtasks_workers{state="suspected"}': "0x70",
    'txtasks_workers{state="lost"}': "1x70",
    "txtasks_cleaners{}": "1x70",
    'txtasks_oldest_seconds{queue="mail"}': "599x70",
    'txtasks_paused{queue="mail"}': "0x70",
    'txtasks_due{queue="mail"}': "9x70",
    'txtasks_dead{queue="mail"}': "0x70",
    "txtasks_counters_are_behind{}": "0x70",
    'txtasks_problems{problem="several_releases"}': "1x70",
    'txtasks_attempts_total{queue="mail",task="a",outcome="succeeded"}': "0+5x70",
    'txtasks_attempts_total{queue="mail",task="a",outcome="failed"}': "0+4x70",
    'txtasks_attempts_total{queue="mail",task="a",outcome="died"}': "0x70",
    'txtasks_attempts_total{queue="mail",task="a",outcome="other"}': "0x70",
}
"""Series of a quiet database, as promtool writes them: a value, and how often it comes again after a minute."""
LATE = {'txtasks_oldest_seconds{queue="mail"}': "601x70"}
PAUSED = {'txtasks_paused{queue="mail"}': "1x70"}
DIES = {'txtasks_attempts_total{queue="mail",task="a",outcome="died"}': "0+2x70"}
DATABASES: dict[str, tuple[dict[str, str], str | None]] = {
    "well": ({}, None),
    "without worker": ({'txtasks_workers{state="alive"}': "0x70"}, "TxtasksNoWorker"),
    "without cleaner": ({"txtasks_cleaners{}": "0x70"}, "TxtasksNoCleaner"),
    "without writes": (
        {
            'txtasks_problems{problem="no_writes"}': "1x70",
            'txtasks_workers{state="alive"}': "0x70",
            "txtasks_cleaners{}": "0x70",
            **LATE,
        },
        "TxtasksNoWrites",
    ),
    "dying": ({'txtasks_problems{problem="dying_workers"}': "1x70"}, "TxtasksWorkersDie"),
    "late": (LATE, "TxtasksTasksWait"),
    "paused and late": ({**LATE, **PAUSED}, "TxtasksPausedQueue"),
    "paused and empty": ({**PAUSED, 'txtasks_due{queue="mail"}': "0x70"}, None),
    "unserved": ({'txtasks_problems{problem="unserved_queue"}': "1x70"}, "TxtasksNobodyRunsThem"),
    "undeclared": (
        {'txtasks_problems{problem="undeclared_names"}': "1x70"},
        "TxtasksNobodyRunsThem",
    ),
    "cause": ({'txtasks_problems{problem="failing_cause"}': "1x70"}, "TxtasksFailingCause"),
    "fails": (DIES, "TxtasksAttemptsFail"),
    "dead": ({'txtasks_dead{queue="mail"}': "1x70"}, "TxtasksDeadTasks"),
    "schedule": (
        {'txtasks_schedule_late{schedule="nightly",reason="late"}': "1x70"},
        "TxtasksSchedule",
    ),
    "silent": ({'txtasks_problems{problem="silent_workers"}': "1x70"}, "TxtasksWarning"),
    "behind": ({"txtasks_counters_are_behind{}": "1x70"}, "TxtasksCountersBehind"),
}
"""Databases, each with changes of the quiet series, and the only alert that fires for it."""
FIRING = 'count by (alertname, database) (ALERTS{alertstate="firing"})'


def rule_test(series: dict[str, str], alerts: list[dict[str, str]]) -> dict[str, Any]:
    """Return a test of promtool: after 70 minutes these alerts fire and no other one, and none at the start."""
    expected = [
        "{" + ",".join(f'{label}="{value}"' for label, value in one.items()) + "}" for one in alerts
    ]
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": FIRING, "eval_time": "30s", "exp_samples": []},
            {
                "expr": f"{FIRING} > bool 0",
                "eval_time": "70m",
                "exp_samples": [{"labels": labels, "value": 1} for labels in expected],
            },
        ],
    }


def test_each_alert_fires_for_what_it_names_and_for_nothing_else(tmp_path):
    """Two processes give the same values, which no alert adds up."""
    databases = {
        name.replace("{", f'{{database="{database}",instance="{instance}",', 1): values
        for database, (changes, _) in DATABASES.items()
        for name, values in {**WELL, **changes}.items()
        for instance in ("a", "b")
    }
    alerts = [
        {"alertname": alert, "database": database}
        for database, (_, alert) in DATABASES.items()
        if alert is not None
    ]
    no_answer = {'up{job="txtasks-cleaner"}': "0x70", 'up{job="shop"}': "0x70"}
    nothing = [{"alertname": "TxtasksNoMetrics"}, {"alertname": "TxtasksTargetDown"}]
    tested = {one["alertname"] for one in [*alerts, *nothing]}
    assert tested == set(re.findall(r"alert: (\w+)", ALERTS))
    content = {
        "rule_files": [str(DEPLOY / "prometheus/alerts.yaml")],
        "evaluation_interval": "1m",
        "tests": [rule_test(databases, alerts), rule_test(no_answer, nothing)],
    }
    file = tmp_path / "rules.json"
    file.write_text(json.dumps(content))  # JSON is YAML
    assert "SUCCESS" in promtool("test", "rules", file)


def test_the_files_for_prometheus_are_valid():
    assert "SUCCESS" in promtool("check", "rules", DEPLOY / "prometheus/alerts.yaml")
    config = DEPLOY / "prometheus/scrape.yaml"
    assert "SUCCESS" in promtool("check", "config", "--syntax-only", config)


def test_alerts_and_dashboard_name_only_metrics_and_pages_that_exist():
    rules = re.sub(r"alert: \w+|summary: .*", "", ALERTS)
    named = set(re.findall(r"txtasks_\w+", " ".join([*EXPRESSIONS, *re.findall(r"\(.*\)", rules)])))
    ends = ("_bucket", "_count", "_sum")
    known = {*names.METRICS, *(f"{name}{end}" for name in names.METRICS for end in ends)}
    assert named <= known
    assert len(EXPRESSIONS) == len(set(EXPRESSIONS))
    pages, alerts = re.findall(r"page: (/admin/\S+)", ALERTS), re.findall("alert:", ALERTS)
    assert len(pages) == len(re.findall(r"first: manage\.py ", ALERTS)) == len(alerts)
    assert all(resolve(page) for page in pages)


# -- a real one -------------------------------------------------------------------------------------


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@contextmanager
def site() -> Iterator[int]:
    """The site of test_metrics in a thread of this process; gives its port."""

    def answer(environ: Any, start_response: Any) -> Any:
        try:
            return list(application(environ, start_response))
        finally:
            connections.close_all()

    application = get_wsgi_application()
    server = make_server("127.0.0.1", 0, answer, WSGIServer, _Quiet)
    thread = threading.Thread(target=server.serve_forever, args=[0.05])
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join(helpers.PATIENCE)
        server.server_close()


def changed(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return text


def firing(server: Prometheus) -> Counter[str]:
    return Counter(
        one["labels"]["alertname"]
        for one in server.ask("alerts")["alerts"]
        if one["state"] == "firing"
    )


def counted() -> Counter[str]:
    """Return the ended attempts by outcome, as the tables have them."""
    found: Counter[str] = Counter()
    for rows in (Stat.objects.filter(width=EVER), RawStat.objects.all()):
        sums = rows.aggregate(*map(Sum, ("succeeded", "failed")))
        found.update({name.removesuffix("__sum"): number or 0 for name, number in sums.items()})
    return found


@pytest.fixture
def in_trouble(rows):
    """A database with something for each metric. A cleaner keeps what it reads first for 15 s."""
    test_metrics.tasks(3, status=Status.DEAD)
    test_metrics.tasks(2, due=-timedelta(hours=1))
    test_metrics.tasks(1, queue_name="mail")
    test_metrics.tasks(4, lane="a", due=timedelta(hours=1))
    pausing.pause("default", "mail", by="ada")
    Schedule.objects.create(name="gone", task_name="gone.tasks.run", every=60.0)
    test_metrics.appended(succeeded=5, failed=2)


@pytest.fixture
def monitored(in_trouble, settings, txtasks, processes, monkeypatch):
    """Gives Prometheus, and the two cleaners that it scrapes beside the site, which keeps no values."""
    settings.ROOT_URLCONF = "test_metrics"
    monkeypatch.setattr(kept, "MAX_AGE_SECONDS", 0.0)
    kept.forget()
    txtasks(lease=2, heartbeat_interval=0.5)
    ports = [free_port(), free_port()]
    cleaners = [
        processes.start(
            "runcleaner", "--interval=0.2", f"--probe-port={port}", "--probe-address=127.0.0.1"
        )
        for port in ports
    ]
    for port in ports:
        helpers.wait_until(lambda port=port: is_ready(port))
    txtasks(metrics_token=test_metrics.TOKEN)
    with site() as of_site:
        scrape = changed(
            (DEPLOY / "prometheus/scrape.yaml").read_text(),
            {
                "shop.example.com": f"127.0.0.1:{of_site}",
                "cleaner-1:8082": f"127.0.0.1:{ports[0]}",
                "cleaner-2:8082": f"127.0.0.1:{ports[1]}",
                "scheme: https": "scheme: http",
                "interval: 15s": "interval: 500ms",
            },
        )
        files = {
            "scrape.yaml": scrape,
            "alerts.yaml": re.sub(r"for: \w+", "for: 0s", ALERTS),
            "metrics_token": test_metrics.TOKEN,
        }
        with Prometheus(files) as server:
            yield server, cleaners
    kept.forget()


def is_ready(port: int) -> bool:
    try:
        return test_metrics.ask(port, "/ready")[0] == 200
    except OSError:
        return False


def test_prometheus_reads_real_processes_and_its_alerts_fire(monitored):
    server, cleaners = monitored
    up = "count(up == 1)"
    helpers.wait_until(
        lambda: server.query(up) == [({}, 3.0)], what=lambda: str(server.ask("targets"))
    )

    # each process gives the values of the database
    number = counted()["succeeded"]
    total = 'txtasks_attempts_total{outcome="succeeded"}'
    helpers.wait_until(lambda: [value for _, value in server.query(total)] == [number] * 3)
    for metric, expected in {
        'txtasks_dead{queue="default"}': Task.objects.filter(status=Status.DEAD).count(),
        'txtasks_due{queue="mail"}': 1,
        'txtasks_lane_waiting{lane="a"}': 4,
        'txtasks_paused{queue="mail"}': 1,
        'txtasks_schedule_late{schedule="gone",reason="broken"}': 1,
        "txtasks_cleaners": 2,
        'txtasks_run_seconds_bucket{le="+Inf"}': 1,
    }.items():
        assert [value for _, value in server.query(metric)] == [expected] * 3, metric
    assert not promtool("check", "metrics", text=metrics.text(["default"]))

    # all panels of the dashboard show something
    helpers.wait_until(lambda: server.query(f"count_over_time({total}[1m]) > 3"))
    for expression in EXPRESSIONS:
        query = expression.replace("$__rate_interval", "1m")
        query = query.replace("$database", ".*").replace("$queue", ".*")
        assert server.query(query), expression

    # without a worker
    broken = {
        "TxtasksNoWorker", "TxtasksTasksWait", "TxtasksDeadTasks", "TxtasksPausedQueue", "TxtasksSchedule",
    }  # fmt: skip
    helpers.wait_until(lambda: set(firing(server)) == broken, what=lambda: str(firing(server)))
    test_metrics.worker(lease=3600.0, queues=["default", "mail"])
    helpers.wait_until(lambda: "TxtasksNoWorker" not in firing(server))

    # without cleaners
    check_that_counters_never_fall(cleaners[0])
    helpers.wait_until(lambda: firing(server)["TxtasksTargetDown"] == 1)
    assert "TxtasksNoCleaner" not in firing(server)
    cleaners[1].kill()
    helpers.wait_until(lambda: firing(server)["TxtasksTargetDown"] == 2)
    helpers.wait_until(lambda: "TxtasksNoCleaner" in firing(server))


def check_that_counters_never_fall(cleaner: Any) -> None:
    """Append counts and read them again and again, while two cleaners add them up, and one is killed."""
    before: dict[frozenset[str], float] = {}
    start, rounds = counted(), 24
    for number in range(rounds):
        test_metrics.appended(succeeded=1)
        if number == rounds // 2:
            cleaner.kill()
        text = metrics.text(["default"])
        now = {
            labels: value
            for metric in ("_total{", "_bucket{", "_count{", "_sum{")
            for labels, value in counters_in(text, metric).items()
        }
        assert before.keys() <= now.keys()
        assert all(now[labels] >= value for labels, value in before.items())
        before = now
    helpers.wait_until(lambda: not RawStat.objects.exists(), what="the other cleaner adds up")
    assert counted()["succeeded"] == start["succeeded"] + rounds
    after = counters_in(
        metrics.text(["default"]), "txtasks_attempt"
    )  # what cleaners cost still grows
    assert after == {
        labels: value
        for labels, value in before.items()
        if any("txtasks_attempt" in one for one in labels)
    }


def counters_in(text: str, metric: str) -> dict[frozenset[str], float]:
    lines = [one for one in text.splitlines() if metric in one.partition(" ")[0]]
    return test_metrics.values_in("\n".join(lines))
