"""Run type checkers on ``calls.py``: they must object where it says so, and nowhere else.

python tests/typing/check.py
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
CALLS = HERE / "calls.py"


def main() -> int:
    """Return 0 if both checkers object where they should."""
    lines = enumerate(CALLS.read_text().splitlines(), start=1)
    wrong = {number for number, line in lines if line.endswith("# wrong")}
    assert len(wrong) > 10
    failed = False
    for name, objects in (("mypy", mypy()), ("pyright", pyright())):
        for number in sorted(wrong - objects):
            print(f"{name} does not object to line {number} of {CALLS.name}")
        for number in sorted(objects - wrong):
            print(f"{name} objects to line {number} of {CALLS.name}, which is right")
        failed = failed or objects != wrong
        print(f"{name}: {len(objects)} lines, {len(wrong)} are wrong")
    return int(failed)


def mypy() -> set[int]:
    """Return the lines that mypy objects to, in strict mode."""
    output = said("mypy", "--strict", "--no-error-summary", "--no-incremental", str(CALLS))
    found = re.findall(r"^(.+?):(\d+): error", output, re.MULTILINE)
    assert all(Path(path).name == CALLS.name for path, _ in found), output
    return {int(number) for _, number in found}


def pyright() -> set[int]:
    """Return the lines that pyright objects to; basedpyright is pyright in a wheel that needs no npm."""
    output = said("basedpyright", "--project", str(HERE / "pyright.json"), "--outputjson")
    found = json.loads(output)["generalDiagnostics"]
    return {one["range"]["start"]["line"] + 1 for one in found if one["severity"] == "error"}


def said(*command: str) -> str:
    """Return what a program of this environment printed."""
    program = Path(sys.executable).with_name(command[0])
    done = subprocess.run([program, *command[1:]], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
