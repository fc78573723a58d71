"""The month of a shop in its short form: two days, with each fault at least once."""

import json
import subprocess
import sys
from pathlib import Path

MONTH = Path(__file__).with_name("month.py")


def test_a_month_of_deploys_kills_and_outages_loses_nothing_and_doubles_nothing(tmp_path):
    """``python tests/services.py -- python tests/month.py --days 30 --seconds 46`` is the long form."""
    done = subprocess.run(
        [sys.executable, str(MONTH), "--days=2", "--seconds=11", f"--logs={tmp_path}"],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    account = json.loads(done.stdout) if done.stdout else {"complaints": ["it has no account"]}
    assert account["complaints"] == [], done.stdout + done.stderr
    assert len(account["faults"]) == 10
    assert account["tasks"] > 100
