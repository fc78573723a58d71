"""Print how large the package is, and how much of it a reader must know.

    python tests/house.py [directory of another checkout …]

Each checkout is a column, so that a release can be compared with the one before. ``tests/test_house.py`` holds
the limits that this one keeps.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import plain_english
import rooms
from rooms import House, modules

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "django_txtasks"
LONG_CLASS = 150
"""Lines from which a class is counted as long."""


def code_lines(text: str) -> int:
    """Count the lines that hold code: no blank line, comment or docstring."""
    lines: set[int] = set()
    noise = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in noise and token.type != tokenize.ENDMARKER:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstring_lines(ast.parse(text)))


def docstring_lines(tree: ast.AST) -> set[int]:
    """Return the numbers of the lines of all docstrings, those below constants too."""
    found: set[int] = set()
    for node in plain_english.docstring_nodes(tree):
        found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found


def classes(known: dict[str, Path]) -> Iterator[tuple[int, str]]:
    for path in known.values():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield (node.end_lineno or 0) - node.lineno + 1, node.name


def number_constants(known: dict[str, Path]) -> int:
    """Count the names in capitals that modules give to numbers, durations and sizes."""
    count = 0
    for path in known.values():
        for node in ast.parse(path.read_text()).body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.AnnAssign):
                targets = [node.target]
            names = [one.id for one in targets if isinstance(one, ast.Name)]
            if any(re.fullmatch(r"_?[A-Z][A-Z0-9_]*", one) for one in names):
                count += is_number(node.value)
    return count


def is_number(value: ast.expr | None) -> bool:
    """Say whether an expression is made of numbers alone, as ``2 * 1024`` and ``timedelta(days=7)`` are."""
    if isinstance(value, ast.Constant):
        return isinstance(value.value, int | float) and not isinstance(value.value, bool)
    if isinstance(value, ast.BinOp):
        return is_number(value.left) and is_number(value.right)
    if isinstance(value, ast.UnaryOp):
        return is_number(value.operand)
    if isinstance(value, ast.Call):
        is_time = isinstance(value.func, ast.Name) and value.func.id == "timedelta"
        return is_time and all(is_number(one.value) for one in value.keywords)
    return False


def mutants(root: Path) -> int:
    """Count the mutants of the tests of a checkout."""
    files = [*(root / "tests").glob("mutations.py"), *(root / "tests/mutants").glob("*.py")]
    calls = (node for one in files for node in ast.walk(ast.parse(one.read_text())))
    return sum(
        isinstance(one, ast.Call) and getattr(one.func, "id", "") == "Mutant" for one in calls
    )


def words(root: Path, *names: str) -> int:
    """Count the words of Markdown files; 0 for a file that is not there."""
    return sum(len((root / one).read_text().split()) for one in names if (root / one).is_file())


def pages(root: Path) -> list[str]:
    found = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    return [str(one.relative_to(root)) for one in found if "_build" not in one.parts]


FIRST_WAY = (
    "README.md",
    "docs/tutorial.md",
    "docs/how-to/writing-tasks.md",
    "docs/how-to/deployment.md",
)
"""Pages of a first reader."""


def widths(root: Path, known: dict[str, Path]) -> Counter[str]:
    """Count the modules of each folder, without the ``__init__.py`` of those below the top."""
    files = [
        one for one in known.values() if one.name != "__init__.py" or one.parent.name == PACKAGE
    ]
    return Counter(str(one.parent.relative_to(root)) for one in files)


def size(known: dict[str, Path], names: set[str]) -> str:
    lines = sum(len(known[one].read_text().splitlines()) for one in names)
    return f"{lines:,} lines in {len(names)} files"


def layers(plan: House) -> Counter[str]:
    """Count the lines of code of each room."""
    found: Counter[str] = Counter()
    for module, path in plan.paths.items():
        found[rooms.room(plan.rooms[module])] += code_lines(path.read_text())
    return found


def measure(root: Path) -> dict[str, str]:
    """Return the figures of a checkout, by what they say."""
    known = modules(root)
    plan = House(root)
    kinds = Counter(one.kind for one in plan.arrows())
    folders = widths(root, known)
    top = folders.pop(PACKAGE)
    widest = [f"{n} {name.removeprefix(PACKAGE + '/')}" for name, n in folders.most_common(3)]
    lengths = sorted(classes(known), reverse=True)
    texts = [path.read_text() for path in known.values()]
    migrations = list((root / PACKAGE / "migrations").glob("0*.py"))
    return {
        "files of the package": f"{len(known):,}",
        "lines": f"{sum(len(one.splitlines()) for one in texts):,}",
        "lines of code": f"{sum(map(code_lines, texts)):,}",
        "modules at the top": str(top),
        "widest folders below it": ", ".join(widest),
        "arrows from the core": f"{kinds.total()}: "
        + ", ".join(f"{n} {kind}" for kind, n in kinds.most_common()),
        "the marked path": size(known, plan.walk(rooms.PATH, within=("core",))),
        "and all that it needs": size(known, plan.walk(rooms.PATH)),
        "to know before a claim is changed": size(known, plan.walk(rooms.PLANNER)),
        **{f"code of {name}": f"{n:,}" for name, n in layers(plan).most_common()},
        f"classes over {LONG_CLASS} lines": f"{sum(n > LONG_CLASS for n, _ in lengths)} of {len(lengths)}",
        "number constants": str(number_constants(known)),
        "mutants": str(mutants(root)),
        "migrations": str(len(migrations)),
        "words of Markdown": f"{words(root, *pages(root)):,}",
        "words of the README": f"{words(root, 'README.md'):,}",
        "words of a first reader's way": f"{words(root, *FIRST_WAY):,}",
    }


def main(others: list[str]) -> None:
    columns = [measure(Path(one).resolve()) for one in [*others, str(ROOT)]]
    for name in columns[-1]:
        print(f"{name:36}" + "".join(f"{column[name]:44}" for column in columns).rstrip())


if __name__ == "__main__":
    main(sys.argv[1:])
