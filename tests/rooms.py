"""The rooms of the package, and the arrows from its core to the rest.

    python tests/rooms.py [directory of another checkout …]     # each arrow of each checkout

The core enqueues, claims, runs, finishes, retries, compensates, recovers and prunes. All else can be left out, so
the core should know nothing of it. An arrow is one of these in a file of the core:

* an import of a module that is not core;
* the dotted name of such a module in a string;
* ``getattr`` or ``hasattr`` with a name that only such modules define;
* a condition that names a feature, such as ``if self.lanes``.

``rooms.json`` says where the files of earlier checkouts have gone, so that one measure serves both.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "django_txtasks"
MOVES: dict[str, str] = json.loads((ROOT / "tests/rooms.json").read_text())
"""The new place of each file that has moved or will move, both below the package."""
GROUND = ("database", "signals", "exceptions", "models")
"""Core below ``core/``, with public paths. Readers of a claim take it as given."""
CORE = ("core", *GROUND)
FEATURES = {
    "lane",
    "batch",
    "step",
    "many",
    "unique",
    "once",
    "stack",
    "trace",
    "tracing",
    "figure",
    "tally",
    "progress",
    "tick",
    "misfit",
    "notice",
    "announcement",
    "bulk",
    "subject",
    "handed",
}
"""Words of names that belong to one feature, and to no other thing of the core."""
PLANNER = "core/working/schedule.py"
"""Decides what a turn claims. A change of the claim begins here and goes down."""
PATH = "core/working/turns.py"
"""Begin of the path on which a reader learns what happens to a task."""
INTO_CORE = {
    "core/working/last_chances.py": "After a crash, the last attempt that is allowed runs beside no other task.",
    "core/working/apart.py": "A claim leaves out the rows of a lane, and never runs them wrongly.",
    "core/working/running/portions.py": "Each claimed attempt is handed to one slot, once.",
    "core/declaring/forms.py": "A row that does not fit its function is released, and not called.",
    "core/enqueueing/no_hints.py": "Losing every hint costs nothing but latency.",
    "core/working/parts.py": "All drivers end an attempt alike, and no part changes its outcome.",
    "core/ground/surroundings.py": "A worker that is told to stop claims nothing more.",
    "core/working/running/unguarded.py": "Nothing of an attempt stays in the session of the next one.",
    "core/working/running/verdicts.py": "The error of an attempt decides the arrow of its row.",
    "core/rows/running.py": "A batch that a task opens ends with its attempt.",
    "core/ground/config.py": "A lease is three beats or longer.",
    "core/declaring/table.py": "All options of a call are checked before its first statement.",
    "core/ground/seams.py": "The core imports no feature.",
    "core/rows/claim_parts.py": "All claims have the same conditions.",
    "core/rows/arrow_parts.py": "What follows from an arrow is written in the transaction of the arrow.",
    "core/enqueueing/parts.py": "All rows of an enqueueing are written in its transaction.",
    "core/cleaning/parts.py": "A step of a pass that fails stops no other step.",
}
"""Files of the core that the plan of the rooms did not have, with the rule of the protocol that each serves."""


NAMED = {
    ("database/transactions.py", "fast/prepared.py"): "Statements of a turn may be prepared.",
    ("database/transactions.py", "many"): "The name of an argument of Django's execute_wrapper.",
    ("core/declaring/registry.py", "lane"): "The row of a hook has the lane of its function.",
    ("exceptions.py", "lane"): "Retry(lane=True) is public.",
    ("core/working/last_chances.py", "lane"): "A last chance in a lane needs a place there.",
    ("core/working/running/drivers.py", "fast/prefetch.py"): "Claims ahead.",
    ("core/working/workload.py", "fast/prefetch.py"): "Claims ahead.",
    ("core/working/schedule.py", "fast/back_off.py"): "Pauses after failed turns.",
    ("core/working/scan_cursor.py", "fast/sweep.py"): "Scans that take too long.",
    ("core/working/schedule.py", "fast/sweep.py"): "Scans that take too long.",
    ("core/working/turn_claims.py", "fast/sweep.py"): "Scans that take too long.",
    ("core/working/turn_writer.py", "fast/sweep.py"): "Scans that take too long.",
}
"""The arrows that are left, from a file to another or to a word, with the purpose of each."""


class Arrow(NamedTuple):
    """One place in the core that knows something outside of it."""

    source: str
    target: str
    kind: str


class House:
    """The files of one checkout, each with its room.

    Attributes:
        paths: file of each module, by its dotted name.
        rooms: place of each module below the package, after the moves.
    """

    def __init__(self, root: Path) -> None:
        self.paths = modules(root)
        self.rooms: dict[str, str] = {}
        for module, path in self.paths.items():
            place = str(path.relative_to(root / PACKAGE))
            self.rooms[module] = MOVES.get(place, place)

    @functools.cached_property
    def core(self) -> list[str]:
        """The modules of the core."""
        return [one for one in self.paths if self.is_core(one)]

    def is_core(self, module: str) -> bool:
        return room(self.rooms[module]) in CORE

    @functools.cache  # noqa: B019 -- a house lives as long as its script
    def tree(self, module: str) -> ast.Module:
        return ast.parse(self.paths[module].read_text())

    @functools.cache  # noqa: B019
    def imports(self, module: str) -> frozenset[str]:
        """Return the modules of the package that a module imports, wherever in the file."""
        found = set()
        for node in ast.walk(self.tree(module)):
            if isinstance(node, ast.Import):
                found |= {one.name for one in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = {f"{node.module}.{one.name}" for one in node.names}
                found |= {one if one in self.paths else node.module for one in names}
        return frozenset(found & self.paths.keys())

    def arrows(self) -> list[Arrow]:
        """Return the arrows from the core to what is not core, sorted."""
        return sorted({one for module in self.core for one in self._arrows_of(module)})

    def _arrows_of(self, module: str) -> Iterator[Arrow]:
        for target in self.imports(module):
            if not self.is_core(target):
                yield Arrow(module, target, "import")
        for node in ast.walk(self.tree(module)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if (named := self._module_in(node.value)) and not self.is_core(named):
                    yield Arrow(module, named, "name")
            elif isinstance(node, ast.Call) and (hook := _looked_up(node)) in self._foreign_names:
                yield Arrow(module, str(hook), "hook")
            elif isinstance(node, ast.If | ast.IfExp | ast.While):
                for word in features_in(node.test):
                    yield Arrow(module, f"{word} in line {node.lineno}", "branch")

    def _module_in(self, text: str) -> str | None:
        if not re.fullmatch(rf"{PACKAGE}(\.\w+)+", text):
            return None
        parts = text.split(".")
        names = (".".join(parts[:n]) for n in range(len(parts), 1, -1))
        return next((one for one in names if one in self.paths), None)

    @functools.cached_property
    def _foreign_names(self) -> set[str]:
        """The names of attributes and functions that only modules outside of the core define."""
        inside: set[str] = set()
        outside: set[str] = set()
        for module in self.paths:
            (inside if self.is_core(module) else outside).update(_defined(self.tree(module)))
        return outside - inside

    def walk(self, begin: str, *, within: tuple[str, ...] = ()) -> set[str]:
        """Return the modules that a module needs, itself included, without the ground.

        Args:
            begin: its place after the moves.
            within: rooms that the walk does not leave; empty: all.
        """
        seen: set[str] = set()
        ahead = [one for one, place in self.rooms.items() if place == begin]
        while ahead:
            one = ahead.pop()
            name = room(self.rooms[one])
            if one not in seen and name not in GROUND and (not within or name in within):
                seen.add(one)
                ahead += self.imports(one)
        return seen


def modules(root: Path) -> dict[str, Path]:
    """Return the file of each module of the package, by its dotted name."""
    found = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def room(place: str) -> str:
    """Return the first folder, or the name of a module at the top."""
    return place.split("/", maxsplit=1)[0].removesuffix(".py")


def features_in(test: ast.expr) -> set[str]:
    """Return the words of features in the names of a condition. English and Python have some of them, too."""
    names = {one.id for one in ast.walk(test) if isinstance(one, ast.Name)}
    names |= {one.attr for one in ast.walk(test) if isinstance(one, ast.Attribute)}
    plain = [re.sub(r"(too|how|are)_many|stack_info", "", name) for name in names]
    parts = {part.lower() for name in plain for part in re.findall(r"[A-Z]?[a-z]+", name)}
    return {
        one for part in parts for one in (part, part.removesuffix("s"), part.removesuffix("es"))
    } & FEATURES


def _looked_up(call: ast.Call) -> str | None:
    """Return the name that ``getattr`` or ``hasattr`` looks up; None = another call."""
    is_look = isinstance(call.func, ast.Name) and call.func.id in ("getattr", "hasattr")
    name = call.args[1] if is_look and len(call.args) > 1 else None
    return str(name.value) if isinstance(name, ast.Constant) else None


def _defined(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def main(others: list[str]) -> None:
    for root in [*others, str(ROOT)]:
        found = House(Path(root).resolve()).arrows()
        for one in found:
            print(f"{one.kind:7} {one.source} -> {one.target}")
        print(f"{len(found)} arrows: {dict(Counter(one.kind for one in found))}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
