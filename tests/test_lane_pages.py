"""Lanes as people see and change them: the command, the admin, and why a task is not running."""

import re
from datetime import timedelta
from io import StringIO

import helpers
import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import CommandError, call_command
from django.urls import reverse
from probe import tasks

from django_txtasks import signals
from django_txtasks.conf import get_config
from django_txtasks.core.rows import cleaners, workers
from django_txtasks.database.transactions import own_transaction
from django_txtasks.features.lanes import changes as lane_changes
from django_txtasks.features.lanes import claiming as lanes
from django_txtasks.features.lanes.status import rate_text, status_of_lanes
from django_txtasks.insight.audit import audit
from django_txtasks.insight.explain import explain
from django_txtasks.models import Lane, Status, Task, Worker

pytestmark = pytest.mark.usefixtures("rows", "quick")

RULES = {"api": {"at_most": 2}, "slow": {"rate": "100/h"}, "tenant:*": {"weight": 1}}


@pytest.fixture(autouse=True)
def rules(txtasks):
    txtasks(lanes=RULES)


@pytest.fixture
def crew():
    """A living worker with two slots, which does nothing, and a running cleaner."""
    lease = get_config().lease
    cleaner = cleaners.register("default", interval=timedelta(seconds=9), lease=lease)
    cleaners.passed("default", cleaner)
    return workers.register(
        "default", queues=["default"], task_names=["probe.tasks.call_api", "probe.tasks.note"],
        threads=2, listening=None, lease=lease,
    )  # fmt: skip


def claimed(worker, name, count=9):
    lanes.create("default", [name])
    with own_transaction("default", read_committed=True):
        request = lanes.LanesRequest([name], count, get_config().lanes, 0.0)
        return lanes.claim(helpers.subscription(), worker, request)[0]


def work():
    call_command("runworkers", batch=True, threads=1)


def only_reason(handle):
    (reason,) = explain("default", handle.id)
    return reason


def gates(handle):
    return [one.gate for one in explain("default", handle.id)]


def command(*arguments):
    out, err = StringIO(), StringIO()
    call_command("txtasks_lane", *arguments, stdout=out, stderr=err)
    return out.getvalue() + err.getvalue()


# -- why is it not running ------------------------------------------------------------------------


def test_a_lane_that_is_full(crew):
    handles = [tasks.call_api.enqueue(f"{n}") for n in range(3)]
    holders = claimed(crew, "api")
    reason = only_reason(handles[2])
    assert reason.gate == "full"
    assert "Lane api is full: 2 of 2 run" in reason.text
    assert all(str(one.task_id) in reason.text for one in holders)
    assert "manage.py txtasks_lane limit api --at-most N" in reason.lift
    command("limit", "api", "--at-most", "3")
    assert gates(handles[2]) == ["next"]
    work()
    assert helpers.row(handles[2].id) is None


def test_a_lane_that_is_paused(crew):
    handle = tasks.call_api.enqueue("x")
    lane_changes.pause("default", "api", by="ann", reason="their incident")
    reason = only_reason(handle)
    assert reason.gate == "lane"
    assert "Lane api was paused by ann at 20" in reason.text
    assert "(their incident)" in reason.text
    assert reason.lift == "manage.py txtasks_lane resume api"
    work()
    assert helpers.row(handle.id).status == Status.PENDING
    command("resume", "api")
    assert gates(handle) == ["next"]
    work()
    assert helpers.row(handle.id) is None


def test_a_lane_whose_rate_says_later(crew):
    _, second = (tasks.note.using(lane="slow").enqueue(f"{n}") for n in range(2))
    claimed(crew, "slow", 1)
    reason = only_reason(second)
    assert reason.gate == "rate"
    assert re.search(r"lets the next task start in 3\d\.\d s \(rate 100/h\)", reason.text)
    command("limit", "slow", "--rate", "100/s", "--burst", "100")
    Lane.objects.update(tokens=50)
    assert gates(second) == ["next"]


def test_a_lane_that_was_asked_to_wait(crew):
    handle = tasks.call_api.enqueue("x")
    lanes.create("default", ["api"])
    lanes.hold("default", "api", timedelta(seconds=600))
    reason = only_reason(handle)
    assert reason.gate == "hold"
    assert "has asked it to wait for" in reason.text
    command("resume", "api")
    assert gates(handle) == ["next"]


def test_the_slots_of_a_lane_s_task(crew):
    Worker.objects.update(running=2)
    tasks.call_api.using(run_after=timedelta(hours=-1)).enqueue("before")
    handle = tasks.call_api.enqueue("x")
    reason = only_reason(handle)
    assert reason.gate == "slots"
    assert "Due tasks of its queue that come first: 1." in reason.text


def test_what_waits_in_a_lane_is_no_sign_of_slow_workers(txtasks):
    txtasks(clean_interval=0.01)
    tasks.call_api.enqueue("x")
    Task.objects.update(run_after="2020-01-01 00:00:00+00:00")
    found = {one.name: one.count for one in audit("default", get_config())}
    assert not found.get("overdue")


# -- the command ----------------------------------------------------------------------------------


def test_the_command_lists_lanes(crew):
    for n in range(3):
        tasks.call_api.enqueue(f"{n}")
    claimed(crew, "api")
    tasks.serve_tenant.enqueue("x", tenant="7")
    lane_changes.pause("default", "tenant:7", by="ann")
    out = command("list")
    assert "api: limits: 2 at once, 2 running, 1 waiting, full" in out
    assert re.search(r"tenant:7: limits: none, 0 running, 1 waiting, paused since 20.* by ann", out)
    assert command("list", "slow").startswith("slow: limits: 100/h, 0 running, 0 waiting")


def test_the_command_changes_limits_and_takes_them_back():
    assert "its limits are 1 at once, 10/m, weight 2" in command(
        "limit", "api", "--at-most", "1", "--rate", "10/m", "--weight", "2"
    )
    assert "its limits are 2 at once" in command("limit", "api", "--as-in-settings")
    row = Lane.objects.get()
    assert (row.at_most, row.rate, row.burst, row.weight) == (None, "", None, None)


def test_the_command_pauses_and_resumes():
    assert "api: paused" in command("pause", "api", "--reason", "x" * 999)
    assert "api: was paused already" in command("pause", "api")
    assert len(Lane.objects.get().reason) == 200
    assert "api: resumed" in command("resume", "api")
    assert "api: was not paused" in command("resume", "api")


def test_the_command_names_older_workers(crew):
    Worker.objects.update(protocol=1)
    assert "Workers of an older release ignore the limits of lanes" in command("pause", "api")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pause"], "Say which lanes to pause"),
        (["limit", "api"], "Say which limit"),
        (["limit", "api", "--at-most", "0"], "a whole number, 1 or more"),
        (["limit", "api", "--rate", "often"], "'100/m'"),
        (["limit", "api", "--weight", "0"], "from 0.001 to 1000"),
        (["pause", "a*"], "at the end of a pattern"),
        (["list", "--database", "nowhere"], "'nowhere' is not in DATABASES"),
    ],
)
def test_wrong_options_are_refused(arguments, message):
    with pytest.raises(CommandError, match=message):
        command(*arguments)
    assert not Lane.objects.exists()


def test_what_a_person_does_is_told():
    told = []

    def note(signal, **facts):
        told.append((signal is signals.lane_limited, facts["lane"], facts["by"]))

    events = (signals.lane_limited, signals.lane_paused, signals.lane_resumed)
    for one in events:
        one.connect(note)
    try:
        lane_changes.limit("default", "api", {"at_most": 1}, by="ann")
        lane_changes.pause("default", "api", by="ann")
        lane_changes.pause("default", "api", by="bob")
        lane_changes.resume("default", "api", by="bob")
    finally:
        for one in events:
            one.disconnect(note)
    assert told == [(True, "api", "ann"), (False, "api", "ann"), (False, "api", "bob")]


def test_a_person_changes_nothing_that_workers_write():
    lanes.create("default", ["api"])
    Lane.objects.update(tokens=7.5, tag=3.5)
    lane_changes.limit("default", "api", {"at_most": 1})
    lane_changes.pause("default", "api")
    row = Lane.objects.get()
    assert (row.tokens, row.tag, row.at_most) == (7.5, 3.5, 1)


def test_rates_as_people_write_them():
    rates = [10.0, 100 / 60, 1000 / 3600, 5000 / 86400, 7 / 86400]
    assert [rate_text(one) for one in rates] == ["10/s", "100/m", "1000/h", "5000/d", "7/d"]


def test_a_lane_without_a_rule_is_marked(txtasks):
    tasks.call_api.enqueue("x")
    txtasks(lanes={})
    assert "not served, no rule in TXTASKS['lanes']" in command("list")
    assert not status_of_lanes("default", ["api"])[0].is_known


def test_a_task_in_a_lane_without_a_rule(crew, txtasks):
    handle = tasks.call_api.enqueue("x")
    txtasks(lanes={})
    assert only_reason(handle).gate == "lane"
    assert "no rule for its lane api" in only_reason(handle).text
    txtasks(lanes=RULES)
    assert gates(handle) == ["next"]


# -- the admin ------------------------------------------------------------------------------------

PAGE = "admin:txtasks_lane_"


def form(seen=(), **changes):
    """Return the values that a browser sends: the typed ones, and the initial ones."""
    values = {"at_most": "", "rate": "", "burst": "", "weight": "", "reason": "", **changes}
    before = {**dict.fromkeys(values, ""), "paused": "False", **dict(seen)}
    return {**values, **{f"initial-{key}": value for key, value in before.items()}}


def test_who_may_change_a_lane_limits_and_pauses_it(client, person, crew):
    person("view_lane", "change_lane")
    for n in range(3):
        tasks.call_api.enqueue(f"{n}")
    claimed(crew, "api")
    page = client.get(reverse(f"{PAGE}changelist"))
    assert b"2 at once" in page.content
    assert b"full" in page.content
    url = reverse(f"{PAGE}change", args=["api"])
    assert b"Empty: as in the settings." in client.get(url).content
    client.post(url, form(at_most="1", rate="9/m", paused="on", reason="<b>"), follow=True)
    row = Lane.objects.get()
    assert (row.at_most, row.rate, row.paused_by, row.reason) == (1, "9/m", "ann", "<b>")
    assert LogEntry.objects.get().object_id == "api"
    page = client.get(reverse(f"{PAGE}changelist"))
    assert b"&lt;b&gt;" in page.content
    seen = {"at_most": "1", "rate": "9/m", "paused": "True", "reason": "<b>"}
    client.post(url, form(seen, rate="9/m"), follow=True)
    row = Lane.objects.get()
    assert (row.at_most, row.rate, row.paused_at) == (None, "9/m", None)


def test_what_somebody_else_changes_meanwhile_stays(client, person):
    person("view_lane", "change_lane")
    lanes.create("default", ["api"])
    url = reverse(f"{PAGE}change", args=["api"])
    assert b'name="initial-paused"' in client.get(url).content
    lane_changes.pause("default", "api", by="bob", reason="his")
    lane_changes.limit("default", "api", {"at_most": 1})
    client.post(url, form(weight="2"), follow=True)
    row = Lane.objects.get()
    assert (row.paused_by, row.reason, row.at_most, row.weight) == ("bob", "his", 1, 2)
    client.post(
        url, form({"paused": "True", "reason": "his"}, paused="on", reason="new"), follow=True
    )
    assert (Lane.objects.get().paused_by, Lane.objects.get().reason) == ("bob", "new")


def test_a_hold_is_ended_in_the_admin(client, person):
    person("view_lane", "change_lane")
    lanes.create("default", ["api"])
    lanes.hold("default", "api", timedelta(hours=1))
    assert b"asked to wait" in client.get(reverse(f"{PAGE}changelist")).content
    url = reverse(f"{PAGE}change", args=["api"])
    client.post(url, form({"paused": "True"}), follow=True)
    assert Lane.objects.get().held_until is None


def test_a_page_of_lanes_asks_for_all_of_them_at_once(
    client, person, django_assert_max_num_queries
):
    person("view_lane")
    lanes.create("default", [f"tenant:{n}" for n in range(40)])
    with django_assert_max_num_queries(25):
        page = client.get(reverse(f"{PAGE}changelist"))
    assert b"tenant:39" in page.content


def test_who_may_only_look_changes_nothing(client, person):
    person("view_lane")
    lanes.create("default", ["api"])
    url = reverse(f"{PAGE}change", args=["api"])
    assert client.get(url).status_code == 200
    assert client.post(url, form(at_most="1")).status_code == 403
    assert client.get(reverse(f"{PAGE}add")).status_code == 403
    assert Lane.objects.get().at_most is None


def test_what_is_no_limit_is_refused_in_the_admin(client, person):
    person("view_lane", "change_lane")
    lanes.create("default", ["api"])
    url = reverse(f"{PAGE}change", args=["api"])
    page = client.post(url, form(at_most="0", rate="often", weight="-1"))
    for text in (b"a whole number, 1 or more", b"100/m", b"from 0.001 to 1000"):
        assert text in page.content
    assert Lane.objects.get().at_most is None


def test_tasks_of_a_lane_in_the_admin(client, person):
    person("view_task", "view_lane")
    tasks.call_api.enqueue("laned")
    tasks.note.enqueue("plain")
    lanes.create("default", ["api"])
    url = reverse("admin:txtasks_task_changelist")

    def names(query):
        page = client.get(f"{url}?{query}")
        assert page.status_code == 200
        return sorted(row.task_name for row in page.context["cl"].result_list), page

    assert names("state=pending")[0] == ["probe.tasks.call_api", "probe.tasks.note"]
    assert names("state=pending&lane=api")[0] == ["probe.tasks.call_api"]
    assert names("state=pending&lane=api&queue=default")[0] == ["probe.tasks.call_api"]
    assert names("state=pending&lane=api&due=later")[0] == []
    found, page = names("state=pending&queue=default")
    assert found == ["probe.tasks.note"]
    assert b"choose the lane" in page.content
    handle = Task.objects.get(lane="api")
    page = client.get(reverse("admin:txtasks_task_change", args=[handle.pk]))
    assert b"api" in page.content


def test_a_filter_by_lane_holds_before_any_lane_has_a_row(client, person):
    tasks.note.using(lane="tenant:a").enqueue("first")
    tasks.note.using(lane="tenant:b").enqueue("second")
    assert not Lane.objects.exists()
    person("view_task")
    page = client.get(reverse("admin:txtasks_task_changelist"), {"lane": "tenant:a"})
    assert [one.lane for one in page.context["cl"].result_list] == ["tenant:a"]
