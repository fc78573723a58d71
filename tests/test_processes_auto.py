"""``runworkers --processes auto``: the number of worker processes from the CPUs that this process may use."""

import os
import subprocess
import sys

import helpers
import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from django_txtasks import signals
from django_txtasks.conf import get_config
from django_txtasks.management.processes import for_each_database
from django_txtasks.processes import cpus
from django_txtasks.processes.cpus import MOST_WITHOUT_QUOTA, Cpus

CPUS = len(os.sched_getaffinity(0))
V2 = "30 24 0:26 {root} {point} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V1 = "32 31 0:29 {root} {point} rw,relatime - cgroup cgroup rw,{controllers}"
READ = f"import {cpus.__name__} as m; print(m.cpus().allowed, m.cpus().processes)"


class Own:
    """A directory like ``/proc/self``, and directories like mounted trees of cgroups."""

    def __init__(self, path):
        self.path = path
        (path / "cgroup").write_text("")
        (path / "mountinfo").write_text("")

    def add(self, file, line):
        with (self.path / file).open("a") as lines:
            lines.write(line + "\n")

    def v2(self, path, quotas, *, root="/", point="cgroup two"):
        """Add a cgroup of version 2 at this path; ``quotas`` are texts of cpu.max by path."""
        self.add("cgroup", f"0::{path}")
        where = self.path / point
        self.add("mountinfo", V2.format(root=root, point=str(where).replace(" ", r"\040")))
        for name, text in quotas.items():
            directory = where / name
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "cpu.max").write_text(text + "\n")

    def v1(self, path, quotas, *, root="/", controllers="cpu,cpuacct"):
        """Add a cgroup of version 1; ``quotas`` are pairs (quota, period) by path."""
        self.add("cgroup", f"4:{controllers}:{path}")
        where = self.path / controllers
        self.add("mountinfo", V1.format(root=root, point=where, controllers=controllers))
        for name, (quota, period) in quotas.items():
            directory = where / name
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "cpu.cfs_quota_us").write_text(f"{quota}\n")
            (directory / "cpu.cfs_period_us").write_text(f"{period}\n")

    @property
    def quota(self):
        return cpus.cpus(self.path).quota


@pytest.fixture
def own(tmp_path):
    return Own(tmp_path)


def test_without_cgroups_there_is_no_quota(own):
    assert cpus.cpus(own.path) == Cpus(CPUS, None)
    assert cpus.cpus(own.path / "nothing") == Cpus(CPUS, None)


@pytest.mark.parametrize(
    ("text", "quota"),
    [
        ("150000 100000", 1.5),
        ("20000 10000", 2.0),
        ("max 100000", None),
        ("0 100000", None),
        ("100000 0", None),
        ("many", None),
        ("", None),
    ],
)
def test_version_2_says_it_in_one_file(own, text, quota):
    own.v2("/pod", {"pod": text})
    assert own.quota == quota


@pytest.mark.parametrize(
    ("pair", "quota"), [((50000, 100000), 0.5), ((-1, 100000), None), (("x", 100000), None)]
)
def test_version_1_says_it_in_two(own, pair, quota):
    own.v1("/pod", {"pod": pair})
    assert own.quota == quota


@pytest.mark.parametrize(
    "quotas",
    [
        {"": "max 100000", "pods": "400000 100000", "pods/one": "max 100000"},
        {"": "400000 100000", "pods": "800000 100000", "pods/one": "900000 100000"},
        {"pods": "800000 100000", "pods/one": "400000 100000"},
    ],
    ids=["above", "at the root", "its own"],
)
def test_the_lowest_of_its_cgroup_and_of_those_above_it_counts(own, quotas):
    own.v2("/pods/one", quotas)
    assert own.quota == 4.0


def test_the_lowest_of_both_versions_counts(own):
    own.v1("/pods/one", {"pods": (300000, 100000)})
    own.v2("/pods/one", {"pods": "400000 100000"})
    assert own.quota == 3.0


def test_neither_another_cgroup_nor_another_controller_counts(own):
    own.v2("/pods/one", {"pods/one": "400000 100000", "pods/two": "100000 100000"})
    own.v1("/pods/one", {"pods/one": (100000, 100000)}, controllers="cpuacct,memory")
    assert own.quota == 4.0


@pytest.mark.parametrize("path", ["/docker/abc", "/docker/abc/inner", "/elsewhere"])
def test_a_container_sees_its_own_cgroup_at_the_mount_point(own, path):
    """The path is that of the host, and the directories above it are not mounted."""
    own.v1(path, {"": (200000, 100000), "inner": (-1, 100000)}, root="/docker/abc")
    assert own.quota == 2.0


def test_lines_of_another_form_are_passed_over(own):
    own.add("mountinfo", "nonsense")
    own.add("mountinfo", "1 2 3 - cgroup2")
    own.add("cgroup", "nonsense")
    own.add("cgroup", "0::not/absolute")
    assert own.quota is None
    own.v2("/pod", {"pod": "100000 100000"})
    assert own.quota == 1.0


@pytest.mark.parametrize(
    ("allowed", "quota", "processes", "reason"),
    [
        (64, None, MOST_WITHOUT_QUOTA, "may use 64 CPUs, and without a CPU quota of a cgroup 8"),
        (4, None, 4, "it may use 4 CPUs"),
        (1, None, 1, "it may use 1 CPU"),
        (64, 2.9, 2, "the CPU quota of its cgroup is 2.9"),
        (64, 0.5, 1, "the CPU quota of its cgroup is 0.5"),
        (64, 16.0, 16, "the CPU quota of its cgroup is 16"),
        (4, 16.0, 4, "it may use 4 CPUs"),
    ],
)
def test_whole_cpus_count_and_at_least_one(allowed, quota, processes, reason):
    assert Cpus(allowed, quota).processes == processes
    assert reason in Cpus(allowed, quota).reason


def test_it_counts_the_cpus_of_the_affinity_mask():
    """A process of one CPU, on a machine that may have more."""
    one = min(os.sched_getaffinity(0))
    shown = subprocess.check_output(
        [sys.executable, "-c", READ],
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        preexec_fn=lambda: os.sched_setaffinity(0, {one}),
    )
    assert shown.split() == ["1", "1"]


@pytest.fixture
def chosen():
    """The facts of each choice, and of each warning."""
    told = {"choices": [], "warnings": []}

    def choice(**facts):
        told["choices"].append(facts)

    def warning(**facts):
        told["warnings"].append(facts)

    signals.processes_chosen.connect(choice)
    signals.sessions_near_limit.connect(warning)
    yield told
    signals.processes_chosen.disconnect(choice)
    signals.sessions_near_limit.disconnect(warning)


def test_databases_share_the_cpus(second_database, chosen):
    number = for_each_database(get_config(), ["default", "second"], 4, Cpus(64, 7.0))
    assert number == 3
    assert for_each_database(get_config(), ["default", "second"], 4, Cpus(64, 1.0)) == 1
    first, _ = chosen["choices"]
    assert first["count"] == 3
    assert first["reason"] == "the CPU quota of its cgroup is 7, for 2 databases"


@pytest.mark.skipif(connection.vendor == "sqlite", reason="what a server has")
def test_more_than_a_third_of_the_server_s_sessions_is_a_warning(rows, chosen):
    sql = {"postgresql": "SHOW max_connections", "mysql": "SELECT @@max_connections"}
    [[most]] = helpers.execute(sql[connection.vendor])
    third = int(most) // 3
    for_each_database(get_config(), ["default"], third - 1, Cpus(64, 1.0))
    assert chosen["warnings"] == []
    for_each_database(get_config(), ["default"], third, Cpus(64, 1.0))
    (warning,) = chosen["warnings"]
    del warning["signal"], warning["sender"]
    assert warning == {"count": third + 1, "most": int(most), "database": "default"}


def test_a_database_that_is_away_delays_no_start(rows, monkeypatch, chosen):
    with monkeypatch.context() as patch:
        patch.setitem(connection.settings_dict, "HOST", "127.0.0.1")
        patch.setitem(connection.settings_dict, "PORT", "9")
        assert for_each_database(get_config(), ["default"], 4, Cpus(64, 2.0)) == 2


def test_the_supervisor_starts_a_worker_for_each_cpu(rows, processes, txtasks):
    txtasks(poll_interval=0.2)
    command = processes.start("runworkers", "--processes=auto")
    number = cpus.cpus().processes
    helpers.wait_until(lambda: len(helpers.worker_pids()) == number)
    log = processes.log_of(command)
    assert f"--processes auto starts {number} for each database, because it may use" in log


def test_a_worker_process_alone_takes_no_notice(rows, quick):
    call_command("runworkers", "--processes=auto", "--batch")


@pytest.mark.parametrize("option", ["--threads=auto", "--processes=many"])
def test_other_values_are_refused_by_name(option):
    said = {
        "--threads=auto": r"'auto' is only for --processes\. Threads wait for databases",
        "--processes=many": "'many' is not a whole number of at least 1",
    }
    with pytest.raises(CommandError, match=said[option]):
        call_command("runworkers", option)
