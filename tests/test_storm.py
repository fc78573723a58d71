"""The storm in its short form, with servers of its own that are restarted, too."""

import json
import subprocess
import sys
from pathlib import Path

STORM = Path(__file__).with_name("storm.py")


def test_a_storm_with_restarts_of_both_servers_keeps_every_promise():
    """``python tests/services.py -- python tests/storm.py --tasks 100000 --async-tasks 200`` is the long form."""
    restarts = ["--postgres-restarts=2", "--rabbitmq-restarts=1", "--kill", "0.7", "1.7"]
    done = subprocess.run(
        [
            sys.executable,
            str(STORM),
            "--json",
            "--tasks=2500",
            "--seconds=14",
            "--workers=3",
            "--async-tasks=50",
            *restarts,
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["faults"]["restart PostgreSQL"], told["faults"]["restart RabbitMQ"]) == (2, 1)
    assert told["figures"]["committed"] > 1000
    assert told["figures"]["async"] > 200


def test_a_failover_to_a_standby_that_lags_keeps_every_promise_but_those_it_lacks():
    """``python tests/services.py -- python tests/storm.py --tasks 100000 --failovers 3`` is the long form."""
    options = ["--tasks=900", "--seconds=10", "--failovers=1", "--workers=2", "--no-broker"]
    done = subprocess.run(
        [sys.executable, str(STORM), *options],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    told = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {}
    assert told.get("passed"), done.stdout + done.stderr
    assert len(told["failovers"]) == 1
    assert told["lacked"] > 0, "the standby did not lag"
