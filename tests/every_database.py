"""Run pytest on each database, all at the same time; exit with the first failure's status.

    python tests/services.py -- python tests/every_database.py [pytest's arguments]

PostgreSQL has the whole suite. MariaDB and SQLite leave out the tests marked `once`, which are the
same whatever the database. An environment of tox that is not the newest runs on each database the
tests marked `smoke`: `TXTASKS_TEST_NEWEST` names the newest (see toxfile.py). A `-m` of one's own,
or a test's whole name, comes after these marks and wins.

``--proof`` runs what takes longest and is once, too: the protocol's model, failpoints, storm and month.

``--repeat-failed`` runs a test that failed once more, alone, after all others have ended, if at most MOST_REPEATED
tests failed on its database. The output names it, with its first error: a race in the test or in the package made
it fail. Look for the race with ``repeat.py``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from process_tree import children

PYTEST = Path(sys.executable).with_name("pytest")  # not -m: that would import the source tree
PASSED, TESTS_FAILED, NOTHING_TO_RUN = 0, 1, 5  # what pytest ends with
MOST_REPEATED = 3
PROOF = [  # tox -e proof
    "test_failpoints.py",
    "test_model.py",
    "test_model_of_waits.py",
    "test_month.py",
    "test_storm.py",
]
PATIENCE = 8  # seconds for a pytest to stop when told to: less than services.py has for us
LONGEST = 40 * 60  # seconds; the whole suite takes less than half of that on two busy cores


@dataclass(frozen=True)
class Run:
    """One pytest on one database.

    Attributes:
        marks: what `-m` selects; empty for everything.
        workers: of pytest-xdist; most tests wait for other processes.
    """

    database: str
    url: str
    marks: str
    workers: int

    def failed(self, caches: Path) -> list[str]:
        """Return the names of the tests that failed, from pytest's cache."""
        try:
            return sorted(json.loads((caches / self.database / "v/cache/lastfailed").read_text()))
        except FileNotFoundError:
            return []

    def command(self, arguments: Sequence[str], reports: Path | None) -> list[str | Path]:
        """Return the command line; ``arguments`` are pytest's own."""
        at_once = [f"--numprocesses={self.workers}", "--dist=worksteal"]
        marked = ["-m", self.marks] if self.marks else []
        reported = [f"--junit-xml={reports / self.database}.xml"] if reports else []
        return [PYTEST, *at_once, *marked, *reported, *arguments]


def main(arguments: list[str], reports: Path | None = None) -> int:
    """Return pytest's first status other than 0; write its results for each database as JUnit XML."""
    repeats = arguments[:1] == ["--repeat-failed"]
    arguments = arguments[repeats:]
    with databases() as urls, tempfile.TemporaryDirectory() as caches:
        if arguments[:1] == ["--proof"]:
            chosen = [Run("PostgreSQL", urls["PostgreSQL"], marks="", workers=5)]
            arguments = [*(f"tests/{name}" for name in PROOF), *arguments[1:]]
        else:
            names_tests = any(Path(one.partition("::")[0]).exists() for one in arguments)
            tests = [] if names_tests else tests_of_this_environment()
            chosen, arguments = runs(urls), [*tests, *arguments]
        if not repeats:
            statuses = together(chosen, arguments, reports)
        else:
            statuses = together(chosen, arguments, reports, Path(caches))
            statuses = repeat_failed(chosen, statuses, arguments, Path(caches))
    return next((status for status in statuses if status), PASSED)


def repeat_failed(
    runs: Sequence[Run], statuses: Sequence[int], arguments: Sequence[str], caches: Path
) -> list[int]:
    """Run the tests that failed once more, alone, if they are few; return the statuses that count."""
    final = list(statuses)
    for place, run in enumerate(runs):
        failed = run.failed(caches)
        if statuses[place] == TESTS_FAILED and 0 < len(failed) <= MOST_REPEATED:
            names = "\n".join(failed)
            print(
                f"\n===== {run.database}: failed once, and repeated alone =====\n{names}",
                flush=True,
            )
            again = ["--last-failed", "--numprocesses=0", *arguments]
            (final[place],) = together([run], again, None, caches)
    return final


@contextmanager
def databases() -> Iterator[dict[str, str]]:
    """Give the URL of each database; the file of SQLite lives until the end."""
    with tempfile.TemporaryDirectory() as directory:
        yield {
            "PostgreSQL": os.environ["TXTASKS_TEST_POSTGRES_URL"],
            "MariaDB": os.environ["TXTASKS_TEST_MARIADB_URL"],
            "SQLite": f"sqlite:///{directory}/txtasks.sqlite3?timeout=1",
        }


def runs(urls: dict[str, str]) -> list[Run]:
    """Return what this environment runs on each database."""
    if not is_newest(os.environ.get("TOX_ENV_NAME", "")):
        return [Run(name, url, "smoke and not once", workers=1) for name, url in urls.items()]
    return [
        Run(name, url, "", workers=5)
        if name == "PostgreSQL"
        else Run(name, url, "not once", workers=3)
        for name, url in urls.items()
    ]


def tests_of_this_environment() -> list[str]:
    """Return the arguments that select all tests but the proof's, or the files with tests marked `smoke`.

    All tests are the directory without some files, because pytest reads the directory once for each file that
    is named. They are compiled here, once, because otherwise each of the processes that start together would
    compile them all.
    """
    if not is_newest(os.environ.get("TOX_ENV_NAME", "")):
        found = sorted(Path("tests").glob("test_*.py"))
        return [str(one) for one in found if "mark.smoke" in one.read_text()]
    tests = ["tests", *(f"--ignore=tests/{name}" for name in PROOF)]
    subprocess.run(
        [PYTEST, "--collect-only", "-qq", *tests], check=False, stdout=subprocess.DEVNULL
    )
    return tests


def is_newest(environment: str) -> bool:
    """Return True if the whole suite runs here: everywhere except in the older ones of tox's `py…-django…`."""
    newest = os.environ.get("TXTASKS_TEST_NEWEST", environment)
    return environment == newest or not environment.startswith("py")


def together(
    runs: Sequence[Run],
    arguments: Sequence[str],
    reports: Path | None = None,
    caches: Path | None = None,
) -> list[int]:
    """Run all at the same time; print what each says in one piece when it ends.

    A pytest that has not ended after `LONGEST` is stopped, and says what each of its processes was doing.
    Without that, a test that hangs where pytest's own limit does not see it would show nothing at all.
    """
    latest = time.monotonic() + LONGEST
    with ExitStack() as files:
        outputs = [files.enter_context(tempfile.TemporaryFile()) for _ in runs]
        started = [
            _start(run.command([*cached(run, caches), *arguments], reports), run.url, output)
            for run, output in zip(runs, outputs, strict=True)
        ]
        try:
            statuses = []
            for run, process, output in zip(runs, started, outputs, strict=True):
                statuses.append(_wait(process, latest - time.monotonic()))
                _print(run, output)
        except KeyboardInterrupt:
            _stop(started)
            for run, output in list(zip(runs, outputs, strict=True))[len(statuses) :]:
                _print(run, output)
            raise SystemExit(128 + signal.SIGINT) from None
    return [
        PASSED if status == NOTHING_TO_RUN and run.database != "PostgreSQL" else status
        for run, status in zip(runs, statuses, strict=True)
    ]


def cached(run: Run, caches: Path | None) -> list[str]:
    """Return the option for a cache of pytest that no other run writes."""
    return [] if caches is None else ["-o", f"cache_dir={caches / run.database}"]


def _start(command: Sequence[str | Path], url: str, output: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        env={**os.environ, "TXTASKS_DATABASE_URL": url},
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C reaches it through us, and once
    )


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int:
    """Return the status of this pytest; after that time have its processes print their stacks, and stop it."""
    with suppress(subprocess.TimeoutExpired):
        return process.wait(max(seconds, 0))
    for child in children(process.pid):
        os.kill(child, signal.SIGABRT)  # pytest's faulthandler then prints every thread
    time.sleep(PATIENCE)
    _stop([process])
    return process.wait() or 1


def _print(run: Run, output: IO[bytes]) -> None:
    output.seek(0)
    print(f"\n===== {run.database} =====\n{output.read().decode(errors='replace')}", flush=True)


def _stop(started: Sequence[subprocess.Popen[bytes]]) -> None:
    """Have each pytest end its tests in good order, or kill it."""
    for process in started:
        process.send_signal(signal.SIGINT)
    for process in started:
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
        process.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
