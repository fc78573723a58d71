"""Each of four faults at each of thirteen points: what was committed runs, and the account balances.

Real processes: ``runworkers``, ``runcleaner`` and a sender, which is the test itself where another is
hit. The faults, once each: an exception; kill -9; a freeze of two leases (SIGSTOP, also inside an open
transaction), then SIGCONT; a cut connection: the database's, but RabbitMQ's at "hint" and "receive",
which use that one. At the cleaner's points a worker is killed in mid-task first, so that there is
something to recover.
"""

import account
import helpers
import pytest
from django.conf import settings as django_settings
from failpoints import points

from django_txtasks.models import Worker

pytestmark = [
    pytest.mark.usefixtures("rows"),
    pytest.mark.skipif(
        "postgresql" not in django_settings.DATABASES["default"]["ENGINE"],
        reason="once, with PostgreSQL, whose driver shows the socket that is to be cut",
    ),
]

FAULTS = ["raise", "kill", "stop", "cut"]
KINDS = ("default", "idempotent", "atomic")
QUICK = {
    "heartbeat_interval": 0.2,
    "lease": 3,
    "poll_interval": 0.5,
    "clean_interval": 1,
    "retry_base": 0.01,
    "retry_ceiling": 0.01,
}


class Play:
    """A sender, workers and a cleaner, of which one meets a fault."""

    def __init__(self, processes, directory):
        self.processes, self.directory = processes, directory
        self.promises, self.runs = directory / "promises", directory / "runs"
        self.marker = directory / "marker"
        self.all = []

    def start(self, *arguments, fault=None, marker=None):
        """Start a process that meets ``fault``, or none."""
        env = {
            "DJANGO_SETTINGS_MODULE": "failpoints.settings",
            "TXTASKS_PROMISES": str(self.promises),
            "TXTASKS_RUNS": str(self.runs),
        }
        if fault:
            env["TXTASKS_FAILPOINT"] = f"{fault}:{marker or self.marker}"
        self.all.append(self.processes.start(*arguments, env=env))
        return self.all[-1]

    def send(self, **options):
        """Start a sender that meets a fault."""
        return self.start("shell", "-c", "from failpoints import sender; sender.main()", **options)

    def send_here(self):
        """Send from this process, which meets none."""
        from failpoints import sender  # declares tasks, which other tests do not know

        sender.main(self.promises)

    def log(self):
        """Return the output of all processes."""
        return "\n".join(
            f"{process.args[3:]} -> {process.poll()}\n{self.processes.log_of(process)}"
            for process in self.all
        )

    def marked(self, text):
        """Return True if the fault has struck, or has ended."""
        return self.marker.exists() and text in self.marker.read_text()


@pytest.fixture
def play(processes, broker, txtasks, tmp_path):
    txtasks(**QUICK)
    return Play(processes, tmp_path)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    ("role", "point"), [(role, point) for role in points.ROLES for point in points.ROLES[role]]
)
def test_the_account_balances_after(role, point, fault, play):
    fault_of = {role: {"fault": f"{point}:{fault}"}}
    if role == "cleaner":
        fault_of["worker"] = {"fault": "effects:kill", "marker": play.directory / "first blow"}
    workers = play.start("runworkers", "--processes=2", "--threads=2", **fault_of.get("worker", {}))
    cleaners = [play.start("runcleaner", **fault_of.get("cleaner", {}))]
    helpers.wait_until(lambda: Worker.objects.count() >= 2, what=play.log)
    if role == "sender":
        sender = play.send(**fault_of[role])
    else:
        play.send_here()
    helpers.wait_until(lambda: play.marked(fault), what=play.log)
    if role == "cleaner":
        cleaners.append(play.start("runcleaner"))
        helpers.wait_until(lambda: "started" in play.processes.log_of(cleaners[-1]), what=play.log)
    if fault == "stop":
        helpers.wait_until(lambda: play.marked("went on"), what=play.log)
    hit = -9 if fault == "kill" else None
    if role == "sender":
        assert sender.wait(helpers.PATIENCE) == (hit or 0), play.log()
    account.wait_for_drain(play.log)
    assert cleaners[0].poll() == (hit if role == "cleaner" else None), play.log()
    for process in [workers, *cleaners]:
        process.terminate()
        assert process.wait(helpers.PATIENCE) in (0, hit), play.log()
    account.read(KINDS, play.promises, play.runs).balance(
        crashes=role == "cleaner" or fault in ("kill", "stop")
    )
