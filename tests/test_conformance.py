"""``txtasks_verify --worker``: what it says of workers in other languages, and of planted faults."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from django_txtasks.conf import get_config
from django_txtasks.contrib.verify import conformance
from django_txtasks.contrib.verify.guest import Guest
from django_txtasks.contrib.verify.guest_rules import RULES
from django_txtasks.models import Worker

pytestmark = [
    pytest.mark.once,
    pytest.mark.usefixtures("rows"),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="the page is for PostgreSQL"),
]

HERE = Path(__file__).parent / "foreign"
OF_PAGE = f"{sys.executable} {HERE / 'worker_of_page.py'}"
NODE = shutil.which("node")
FAULTS = [
    ("no functions", "register", "task_names lacks conformance.work."),
    ("no beat", "beat", "Beat in a thread of its own"),
    ("result as text", "claim_and_finish", "Write it as JSON."),
    ("effects apart", "fence_of_finish", "It has committed the effect of an attempt that had lost"),
    ("no priority", "order", "ORDER BY priority DESC, run_after, id."),
    ("claims all", "leave_others_alone", "a unique key, a batch, hooks, a snooze. Claim with"),
    ("no pause", "pause", "It has claimed from a paused queue."),
    ("no retry", "retry", "The row is dead"),
    ("no bury", "bury", "If failures + 1 = max_attempts, bury."),
    (
        "no fence",
        "fence_of_finish",
        "the late attempt has finished it. Say id, attempt, worker and",
    ),
    ("no fence", "fence_of_failure", "the late attempt has failed it."),
    ("no new id", "lost", "works no more. When a beat changes no row, register again"),
    ("no stop", "stop", "It has not ended 5 s after SIGTERM."),
    ("no leave", "stop", "Its row is still there. Execute the statement leave"),
    ("error at the stop", "stop", "It has ended with code 3 after SIGTERM."),
    ("keeps a task", "stop", "still holds"),
]


def run(command, *options):
    """Run the command; return its exit code and what it prints."""

    environment = {
        **os.environ, "DJANGO_SETTINGS_MODULE": "settings_for_tests",
        "PYTHONPATH": os.pathsep.join(sys.path), "TXTASKS_DATABASE_URL": os.environ["TXTASKS_DATABASE_URL"],
    }  # fmt: skip
    line = [sys.executable, "-m", "django", "txtasks_verify", "--worker", command, *options]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_the_worker_of_the_page_keeps_all_rules():
    code, said, more = run(OF_PAGE, "--lease", "2")
    assert [line.partition("  ")[0] for line in said.splitlines()] == ["passed"] * len(RULES), (
        said + more
    )
    assert code == 0
    assert not Worker.objects.exists()  # all was in the scratch database


@pytest.mark.skipif(
    NODE is None
    or subprocess.run([NODE, "-e", 'require("pg")'], capture_output=True, check=False).returncode,
    reason="needs node with its package pg",
)
def test_a_worker_in_node_with_three_slots_keeps_all_rules():
    code, said, more = run(f"{NODE} {HERE / 'worker.js'}", "--lease", "2", "--json")
    found = json.loads(said)
    assert [one["rule"] for one in found if not one["passed"]] == [], said + more
    assert (code, len(found)) == (0, len(RULES))


def test_planted_faults_are_found_and_the_report_says_what_to_do():
    functions = {function.__name__: function for function in RULES.values()}
    with conformance.place("default", lambda text: None) as log:
        missed = {}
        for fault, rule, words in FAULTS:
            command = f"{OF_PAGE} '{fault}'"
            guest = Guest(
                command, conformance.config_of_cleaner(get_config()), 2.0, log, patience=5
            )
            one = conformance.judge(guest, rule, functions[rule])
            if one.passed or words not in one.text:
                missed[fault, rule] = one.line
        assert missed == {}, log.read_text()[-2000:]


def test_a_command_that_does_not_register_ends_the_check_with_code_1():
    with pytest.raises(SystemExit) as ended:
        call_command("txtasks_verify", worker="true")
    assert ended.value.code == 1


def test_a_program_that_is_not_there_is_told_before_anything_is_made():
    with pytest.raises(CommandError, match="the program 'nodeworker', which cannot be started"):
        call_command("txtasks_verify", worker="nodeworker worker.js")
