"""The rule of ``runworkers --processes 1..8``: each of its sentences, and an hour of several loads, simulated."""

import itertools

import pytest
from simulation import SERVICES, Simulation, groups, on_and_off, poisson, saw

from django_txtasks.processes.scaling_rule import Load, Own, ScalingRule

pytestmark = pytest.mark.once
HOUR = 3600.0


def rule(least=1, most=8, threads=4, within=30.0):
    return ScalingRule(least, most, threads, within)


# -- more processes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("oldest", "wanted", "at_work", "own", "change"),
    [
        (0.9, 40, 1, Own(1), 0),
        (1.1, 5, 1, Own(1), 1),
        (1.1, 40, 1, Own(1), 1),
        (1.1, 40, 3, Own(3), 3),
        (1.1, 40, 8, Own(2), 2),
        (1.1, 40, 10, Own(2), 0),
        (1.1, 40, 7, Own(7), 1),
        (1.1, 40, 8, Own(8), 0),
        (1.1, 40, 5, Own(5, ending=2), 1),
        (1.1, 40, 3, Own(3, is_starting=True), 0),
        (14.9, 4, 1, Own(1), 0),
        (15.1, 4, 1, Own(1), 1),
        (15.1, 4, 1, Own(1, is_starting=True), 0),
        (15.1, 4, 8, Own(8), 0),
    ],
    ids=[
        "nobody waits", "as many as are missing", "no more than there are", "doubled", "others help",
        "others are enough", "up to the most", "there are the most", "those that end count", "one starts",
        "half of within is not over", "half of within is over", "one starts, although it is late",
        "there are the most, although it is late",
    ],
)  # fmt: skip
def test_more_processes_start(oldest, wanted, at_work, own, change):
    assert rule().change(0.0, Load(oldest, wanted, at_work), own) == change


def test_within_decides_when_a_wait_is_long():
    assert rule(within=60.0).change(0.0, Load(29.0, 4, 1), Own(1)) == 0
    assert rule(within=60.0).change(0.0, Load(31.0, 4, 1), Own(1)) == 1


# -- fewer processes --------------------------------------------------------------------------------


def ends(looks, staying=5, *, at_work=5, least=1):
    """Return the times of the looks, each a pair of time and wanted threads, at which a process ends."""
    one = rule(least)
    return [
        now
        for now, wanted in looks
        if one.change(now, Load(0.0, wanted, at_work), Own(staying)) == -1
    ]


def every_two_seconds(until, wanted=0):
    return ((float(now), wanted) for now in range(0, until, 2))


def test_a_process_ends_after_two_quiet_minutes_and_another_one_a_minute_later():
    assert ends(every_two_seconds(300)) == [120.0, 180.0, 240.0]


def test_the_greatest_load_of_two_minutes_counts():
    looks = [
        *every_two_seconds(60),
        (60.0, 17),
        *((now + 62.0, 0) for now, _ in every_two_seconds(200)),
    ]
    assert ends(looks)[0] == 182.0


def test_no_process_ends_if_fewer_could_not_bear_the_load():
    assert ends(every_two_seconds(300, wanted=17)) == []
    assert ends(every_two_seconds(130, wanted=16)) == [120.0]


def test_the_processes_of_others_bear_the_load_too():
    assert ends(every_two_seconds(130, wanted=16), 2) == [120.0]


def test_the_fewest_stay():
    assert ends(every_two_seconds(300), 2, least=2) == []


def test_looks_before_a_gap_do_not_count():
    before = list(every_two_seconds(100))
    after = [(now + 130.0, wanted) for now, wanted in every_two_seconds(122)]
    assert ends(itertools.chain(before, after)) == [250.0]


# -- an hour ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize(("period", "starts", "wait"), [(60, 16, 6), (600, 26, 6)])
def test_a_saw_of_load(service, period, starts, wait):
    """Between 2 and 28 tasks a second, of one second each on average."""
    result = Simulation(poisson(saw(period), 28.0, HOUR, SERVICES[service], 1)).run(HOUR)
    assert result.starts <= starts
    assert result.longest_wait <= wait


@pytest.mark.parametrize("service", SERVICES)
def test_a_load_that_comes_and_goes(service):
    """Between 0 and 20 tasks a second, a minute each."""
    result = Simulation(poisson(on_and_off, 20.0, HOUR, SERVICES[service], 1)).run(HOUR)
    assert result.starts <= 16
    assert result.longest_wait <= 9


@pytest.mark.parametrize("service", SERVICES)
def test_groups_of_tasks(service):
    result = Simulation(groups(SERVICES[service], 1)).run(HOUR)
    assert 30 <= result.starts <= 44
    assert result.longest_wait <= 18


@pytest.mark.parametrize(("hosts", "most", "seconds"), [(1, 8, 74), (3, 3, 55)])
def test_a_burst(hosts, most, seconds):
    """10,000 tasks of 0.1 s: after a minute, no task waits for more than 30 s any more."""
    burst = ((60.0, 0.1) for _ in range(10_000))
    result = Simulation(burst, hosts=hosts, most=most).run(300.0)
    assert result.most == hosts * most
    assert result.last_late - 60.0 <= seconds


def test_three_hosts_decide_alone():
    result = Simulation(poisson(saw(60), 28.0, HOUR, SERVICES["fixed"], 1), hosts=3, most=3).run(
        HOUR
    )
    assert result.starts <= 18
    assert result.longest_wait <= 11


def test_a_long_task_ends_by_itself():
    """Of 8 processes, each with a task of ten minutes, each takes nothing more and ends with its task."""
    tasks = [*((1.0, 600.0) for _ in range(32)), (700.0, 1.0), (1500.0, 1.0)]
    simulation = Simulation(tasks)
    result = simulation.run(2000.0)
    assert result.most == 8
    assert simulation.ran == len(tasks)
    assert result.over_time[-1][1] == 1
