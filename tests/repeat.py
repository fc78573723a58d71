"""Run the tests many times while every core is busy with something else; name each that ever failed.

    python tests/services.py -- python tests/repeat.py 10
    python tests/services.py -- python tests/repeat.py 20 tests/test_crash.py -k frozen

The arguments after the number go to pytest, on each database. Ends with 1 if a test failed.
TXTASKS_TEST_BUSY_CORES says how many cores are kept busy; the default is all.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import every_database

BUSY = """
import os, sys, threading

def end_with_the_one_who_started_us():
    sys.stdin.read()
    os._exit(0)

threading.Thread(target=end_with_the_one_who_started_us).start()
while True:
    pass
"""


@contextmanager
def all_cores_busy() -> Iterator[None]:
    """Compute as much as the machine can, beside the tests."""
    command = [sys.executable, "-c", BUSY]
    count = int(os.environ.get("TXTASKS_TEST_BUSY_CORES", os.cpu_count() or 1))
    others = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(count)]
    try:
        yield
    finally:
        for process in others:
            process.kill()
            process.communicate()


def main(arguments: list[str]) -> int:
    """Return 1 if a test failed in any round, or if a round failed without naming one."""
    rounds, failures, bad_rounds = int(arguments[0]), Counter[str](), 0
    with all_cores_busy():
        for number in range(1, rounds + 1):
            began = time.monotonic()
            status, failed = one_round(arguments[1:])
            failures.update(failed)
            bad_rounds += bool(status)
            seconds = time.monotonic() - began
            print(
                f"Round {number} of {rounds}: {_verdict(status, failed)}, {seconds:.0f} s",
                flush=True,
            )
    print(f"\n{rounds - bad_rounds} of {rounds} rounds were green.")
    for test, times in failures.most_common():
        print(f"{times:4} x  {test}")
    return 1 if bad_rounds else 0


def one_round(arguments: list[str]) -> tuple[int, list[str]]:
    """Run the tests once on each database; return the first bad status and who failed."""
    with tempfile.TemporaryDirectory() as reports:
        status = every_database.main(arguments, Path(reports))
        return status, [
            test for report in sorted(Path(reports).iterdir()) for test in failed(report)
        ]


def failed(report: Path) -> Iterator[str]:
    """Give the tests that failed, or whose fixtures did, from what pytest wrote for a database."""
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 (pytest has just written it)
        if case.find("failure") is not None or case.find("error") is not None:
            yield f"{report.stem}: {case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"


def _verdict(status: int, failed: list[str]) -> str:
    if failed:
        return f"{len(failed)} failed"
    return f"ended with {status}" if status else "green"


if __name__ == "__main__":
    if len(sys.argv) < 2 or not sys.argv[1].isdecimal():
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
