"""The features of the package, and the parts that each adds to the core.

The core imports no feature. It calls the parts that features add, each at its seam: see ``core.ground.seams``. A
feature is named here by the dotted names of its modules, and not imported.

The order of the features is the order of their parts: tracers come first, because they surround all others.
"""

from __future__ import annotations

from dataclasses import dataclass

from django_txtasks.core.ground.seams import (
    OF_CALLS,
    OF_CHILDREN,
    OF_CLEANER,
    OF_ERRORS,
    OF_FRAMES,
    OF_ROWS,
    OF_TURNS,
    OF_WORKER,
    compose,
)


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A feature, which can be left out of the package.

    Attributes:
        calls: the module whose ``PARTS`` take part in enqueueings; empty: none.
        cleaner: the module whose ``steps`` take part in the passes and turns of cleaners; empty: none.
        rows: the module whose ``PARTS`` take part in claims and arrows; empty: none.
        worker: the module whose ``parts`` take part in the work of workers; empty: none.
        errors: the module whose ``PARTS`` see the errors of attempts; empty: none.
        children: the module that learns how child processes of a supervisor ended; empty: none.
        turns: the module that does whole turns of workers on one kind of database; empty: none.
    """

    name: str
    calls: str = ""
    cleaner: str = ""
    rows: str = ""
    worker: str = ""
    errors: str = ""
    children: str = ""
    turns: str = ""


def _feature(name: str, *sides: str) -> Feature:
    return Feature(
        name=name, **{side: f"django_txtasks.features.{name}.of_{side}" for side in sides}
    )


FEATURES = (
    _feature("traces", "calls", "rows", "worker"),
    _feature("reports", "cleaner"),
    _feature("log_lines", "worker", "errors"),
    _feature("unique", "calls", "rows"),
    _feature("batches", "calls", "cleaner", "rows", "worker"),
    _feature("hand_over", "calls"),
    _feature("once", "calls", "cleaner"),
    _feature("links", "calls"),
    _feature("schedules", "cleaner"),
    _feature("stacks", "cleaner", "worker"),
    _feature("lanes", "calls", "cleaner", "rows", "worker"),
    _feature("progress", "worker"),
    _feature("misfits", "worker", "errors"),
    _feature("steps", "cleaner"),
    _feature("figures", "cleaner", "rows", "worker"),
    _feature("notices", "rows"),
)
ACCELERATORS = (
    Feature(name="one_statement", turns="django_txtasks.fast.postgresql"),
    Feature(name="two_blocks", turns="django_txtasks.fast.mariadb"),
    Feature(name="upcoming", worker="django_txtasks.fast.upcoming_look"),
    Feature(name="glances", worker="django_txtasks.fast.glances"),
    Feature(name="rerouting", worker="django_txtasks.fast.rerouting"),
)
"""Without one of these, tasks run as well, and slower."""
ENDS = "django_txtasks.processes.ends"
OF_PROCESSES = (Feature(name="ends", worker=ENDS, children=ENDS),)
GUARDS = (
    Feature(name="other_products", calls="django_txtasks.guards.other_products"),
    Feature(name="task_threads", worker="django_txtasks.guards.task_threads"),
    Feature(name="awaited_sessions", worker="django_txtasks.guards.awaited_sessions"),
    Feature(name="slot_sessions", worker="django_txtasks.guards.slot_sessions"),
    Feature(name="replaced_file", cleaner="django_txtasks.guards.replaced_file"),
)
"""They protect a process from what the code of tasks, and people, may do to it."""
COMPOSED = {
    "django_txtasks.core.ground.config.CoreConfig": "django_txtasks.conf.Config",
    "django_txtasks.core.declaring.options.CORE": "django_txtasks.options.OPTIONS",
    "django_txtasks.core.enqueueing.handles.CoreHandle": "django_txtasks.handles.TaskHandle",
    "django_txtasks.core.enqueueing.no_hints": "django_txtasks.hints",
    "django_txtasks.core.rows.running.CoreContext": "django_txtasks.context.TaskContext",
    "django_txtasks.core.declaring.forms.form_of": "django_txtasks.features.many.forms.form_of",
    "django_txtasks.core.working.running.drivers.no_calls": "django_txtasks.features.many.call.calls_of",
    "django_txtasks.core.working.running.drivers.on_no_loop": "django_txtasks.features.async_loop.driver.on_loop",
    "django_txtasks.core.working.running.portions.Portions": "django_txtasks.features.many.room.ManyClaims",
    "django_txtasks.core.working.running.unguarded": "django_txtasks.guards.guarded",
}
"""Classes, tables and modules of the core, each with its counterpart to which features add."""

SEAMS = {
    "calls": OF_CALLS,
    "cleaner": OF_CLEANER,
    "rows": OF_ROWS,
    "worker": OF_WORKER,
    "errors": OF_ERRORS,
    "children": OF_CHILDREN,
    "turns": OF_TURNS,
}
"""The seam of each side of a feature."""
AT_START = (
    "django_txtasks.features.announcements.announcements",
    "django_txtasks.features.bulk",
    "django_txtasks.features.hand_over.at_start",
    "django_txtasks.checks",
    "django_txtasks.notices",
    "django_txtasks.features.schedules.at_start",
)
"""Modules that register something with Django or with the core. They are imported when Django has its models."""
CALLERS = (
    "django_txtasks.backends.running.",
    "django_txtasks.fast.",
    "django_txtasks.features.async_loop.",
    "django_txtasks.features.many.call.",
    "django_txtasks.features.many.items.",
    "django_txtasks.guards.",
    "django_txtasks.processes.",
    "django_txtasks.testing.",
)
"""Beginnings of the names of modules that call tasks. Their frames are left out of tracebacks."""


def assemble() -> None:
    """Tell the core which features there are. Called once, when the package is imported."""
    compose(COMPOSED)
    every = (*FEATURES, *ACCELERATORS, *OF_PROCESSES, *GUARDS)
    for side, seam in SEAMS.items():
        seam.use(filter(None, (getattr(one, side) for one in every)))
    OF_FRAMES.use(CALLERS)
