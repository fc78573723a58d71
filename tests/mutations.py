"""Remove one guard of the protocol at a time: a test must fail each time.

    python tests/services.py -- python tests/mutations.py [--jobs N] [words in the name of a guard]

Works on copies of the tree, one for each job. The tests must first pass without any change; then each guard is
taken out by an exact replacement of text, which must be found once. Prints which test noticed, and ends with 1
if no test noticed the loss of some guard. pytest does not collect this, because all guards take half an hour.
"""

from __future__ import annotations

import argparse
import ast
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mutants import Mutant, every

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "dist", "build", "_build", "*.sqlite3")
PASSED, FAILED = 0, 1  # what pytest ends with; anything else says that it could not do its work
PATIENCE = 120  # seconds; a test that never ends has noticed, too
WAIT = 15  # seconds until a test gives up what a mutant keeps from happening

MUTANTS = every()


def mutated(text: str, mutant: Mutant) -> str:
    """Return a file without the guard.

    Raises:
        SystemExit: the code has changed, so this list has to follow it.
    """
    for old, new in mutant.changes.items():
        if text.count(old) != 1:
            sys.exit(
                f"{mutant.guard}: found {text.count(old)} times in {mutant.file}, not once: {old!r}"
            )
        text = text.replace(old, new)
    if mutant.file.endswith(".py"):
        ast.parse(
            text
        )  # a file that cannot even be imported would fail every test and prove nothing
    return text


def tests_of(mutant: Mutant) -> list[str]:
    """Return the tests that should notice, below the tree."""
    return [f"tests/{name}" for name in mutant.tests.split()]


def run_tests(
    tree: Path, tests: list[str], database: str, *options: str, patience: float = PATIENCE
) -> tuple[int | None, str]:
    """Return pytest's status, None if it took too long, and what it printed."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    sqlite = f"sqlite:///{tree}.sqlite3?timeout=1"
    url = sqlite if database == "SQLITE" else os.environ[f"TXTASKS_TEST_{database}_URL"]
    path = os.pathsep.join(filter(None, [str(tree), os.environ.get("PYTHONPATH")]))
    waits = {"TXTASKS_TEST_PATIENCE": str(WAIT)}
    env = {**os.environ, **waits, "TXTASKS_DATABASE_URL": url, "PYTHONPATH": path}
    try:
        done = subprocess.run(
            [*command, *options, *tests],
            cwd=tree,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=patience,
        )
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stdout + done.stderr


def verdict(tree: Path, mutant: Mutant, database: str) -> str:
    """Return the id of the test that noticed; empty = no test notices that the guard is gone.

    Raises:
        RuntimeError: pytest could not run the tests.
    """
    file = tree / "django_txtasks" / mutant.file
    original = file.read_text()
    file.write_text(mutated(original, mutant))
    try:
        status, output = run_tests(tree, tests_of(mutant), database)
    finally:
        file.write_text(original)
    if status not in (PASSED, FAILED, None):
        raise RuntimeError(f"{mutant.guard}: pytest could not do its work ({status}):\n{output}")
    if status is None:
        return "(a test that never ended)"
    noticed = re.search(r"^(?:FAILED|ERROR) tests/(\S+)", output, re.MULTILINE)
    return noticed[1] if status == FAILED and noticed else ""


def check_unmodified(tree: Path, mutants: list[Mutant]) -> None:
    """Run the tests that the mutants name once, without any mutation.

    Raises:
        SystemExit: one fails, so that its failure would prove nothing.
    """
    for database in sorted({name for one in mutants for name in one.databases}):
        tests = {name for one in mutants if database in one.databases for name in tests_of(one)}
        parallel = ("-n", "2") if len(tests) > 1 else ()
        status, output = run_tests(
            tree, sorted(tests), database, *parallel, patience=PATIENCE * len(tests)
        )
        if status != PASSED:
            sys.exit(f"The tests fail on {database} without any mutation:\n{output}")


@contextmanager
def copies(number: int) -> Iterator[queue.Queue[Path]]:
    """Give copies of the tree, each to be used by one job at a time."""
    trees: queue.Queue[Path] = queue.Queue()
    with ExitStack() as stack:
        for _ in range(number):
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            trees.put(Path(shutil.copytree(ROOT, Path(directory) / "tree", ignore=LEFT_OUT)))
        yield trees


def main() -> int:
    """Try them all; return 1 if one survives."""
    parser = argparse.ArgumentParser(description="Remove one guard of the protocol at a time.")
    parser.add_argument("words", nargs="*", help="only guards whose names have all of them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants at a time")
    args = parser.parse_args()
    mutants = [one for one in MUTANTS if all(word in one.guard for word in args.words)]
    survivors, printing = 0, threading.Lock()

    def attempt(mutant: Mutant, database: str) -> None:
        nonlocal survivors
        tree = trees.get()
        try:
            start = time.monotonic()
            noticed = verdict(tree, mutant, database)
        finally:
            trees.put(tree)
        with printing:
            survivors += not noticed
            seconds = time.monotonic() - start
            found = noticed or "SURVIVED"
            print(f"{mutant.guard:45} {database:8} {found:100} {seconds:5.1f} s", flush=True)

    with copies(args.jobs) as trees:
        for mutant in mutants:
            mutated((ROOT / "django_txtasks" / mutant.file).read_text(), mutant)
        tree = trees.get()
        check_unmodified(tree, mutants)
        trees.put(tree)
        with ThreadPoolExecutor(args.jobs) as pool:
            runs = [
                pool.submit(attempt, one, database) for one in mutants for database in one.databases
            ]
        for run in runs:
            run.result()
    print(f"{survivors} survived")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
