"""Makes a copy of the package that has its core, and nothing that can be left out.

Features, accelerators, guards, hints, processes and views are deleted, except for the files that named arrows
of the core lead to: see ``rooms.NAMED``. The copy's ``assembly`` names none of them.
"""

from __future__ import annotations

import ast
import shutil
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))
import rooms  # noqa: E402

GONE = {
    "admin", "contrib", "fast", "features", "guards", "hints", "insight", "operations", "processes",
}  # fmt: skip
EMPTY = ("FEATURES", "ACCELERATORS", "OF_PROCESSES", "GUARDS", "AT_START", "CALLERS")
"""The tables of ``assembly`` that name what is gone, and its table of the classes that know more than the core."""


def copy(to: Path) -> None:
    """Copy the package into a directory, without what can be left out."""
    house = rooms.House(rooms.ROOT)
    target = to / rooms.PACKAGE
    shutil.copytree(
        rooms.ROOT / rooms.PACKAGE, target, ignore=shutil.ignore_patterns("__pycache__")
    )
    kept = _kept(house)
    for module, path in house.paths.items():
        if rooms.room(house.rooms[module]) in GONE and module not in kept:
            here = target / path.relative_to(rooms.ROOT / rooms.PACKAGE)
            if here.name == "__init__.py" and any(one.startswith(f"{module}.") for one in kept):
                here.write_text("")
            else:
                here.unlink()
    _empty(target / "assembly.py")


def _kept(house: rooms.House) -> set[str]:
    """Return the modules that named arrows lead to, and what these need."""
    targets = {target for _, target in rooms.NAMED}
    todo = [module for module, place in house.rooms.items() if place in targets]
    kept: set[str] = set()
    while todo:
        module = todo.pop()
        if module not in kept:
            kept.add(module)
            todo += [one for one in house.imports(module) if not house.is_core(one)]
    packages = {one.rsplit(".", count)[0] for one in kept for count in range(1, one.count("."))}
    return kept | packages


def _empty(assembly: Path) -> None:
    """Empty the tables of ``assembly``."""
    text = assembly.read_text()
    lines = text.splitlines(keepends=True)
    for node in reversed(ast.parse(text).body):
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(target, ast.Name) and target.id in (*EMPTY, "COMPOSED"):
            value = "{}" if target.id == "COMPOSED" else "()"
            lines[node.lineno - 1 : node.end_lineno] = [f"{target.id} = {value}\n"]
    assembly.write_text("".join(lines))
