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
    Feature(name="one_statement", turns="django_txtasks.lifecycle.engines.postgresql"),
    Feature(name="two_blocks", turns="django_txtasks.lifecycle.engines.mariadb"),
    Feature(name="upcoming", worker="django_txtasks.worker.looks.upcoming"),
    Feature(name="glances", worker="django_txtasks.worker.looks.glances"),
    Feature(name="rerouting", worker="django_txtasks.worker.looks.rerouting"),
)
"""Without one of these, tasks run as well, and slower."""
ENDS = "django_txtasks.worker.process.ends"
OF_PROCESSES = (Feature(name="ends", worker=ENDS, children=ENDS),)
GUARDS = (
    Feature(name="other_products", calls="django_txtasks.enqueueing.other_products"),
    Feature(name="task_threads", worker="django_txtasks.worker.running.task_threads"),
    Feature(name="awaited_sessions", worker="django_txtasks.worker.running.awaited_sessions"),
    Feature(name="slot_sessions", worker="django_txtasks.worker.running.slot_sessions"),
    Feature(name="replaced_file", cleaner="django_txtasks.cleaner.replaced_file"),
)
"""They protect a process from what the code of tasks, and people, may do to it."""
COMPOSED = {
    "django_txtasks.core.ground.config.CoreConfig": "django_txtasks.conf.Config",
    "django_txtasks.declarations.core_options.CORE": "django_txtasks.declarations.options.OPTIONS",
    "django_txtasks.enqueueing.handle.CoreHandle": "django_txtasks.enqueueing.handles.TaskHandle",
    "django_txtasks.enqueueing.no_hints": "django_txtasks.hints",
    "django_txtasks.lifecycle.running.CoreContext": "django_txtasks.context.TaskContext",
    "django_txtasks.declarations.forms.form_of": "django_txtasks.features.many.forms.form_of",
    "django_txtasks.worker.running.drivers.no_calls": "django_txtasks.worker.running.many_call.calls_of",
    "django_txtasks.worker.running.drivers.on_no_loop": "django_txtasks.worker.loop.driver.on_loop",
    "django_txtasks.worker.running.portions.Portions": "django_txtasks.worker.running.many_claims.ManyClaims",
    "django_txtasks.worker.running.unguarded": "django_txtasks.worker.running.guarded",
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
    "django_txtasks.announcements",
    "django_txtasks.bulk",
    "django_txtasks.checks",
    "django_txtasks.notices",
    "django_txtasks.features.schedules.at_start",
)
"""Modules that register something with Django or with the core. They are imported when Django has its models."""
CALLERS = ("django_txtasks.items.", "django_txtasks.backends.running.", "django_txtasks.testing.")
"""Beginnings of the names of modules that call tasks. Their frames are left out of tracebacks."""


def assemble() -> None:
    """Tell the core which features there are. Called once, when the package is imported."""
    compose(COMPOSED)
    every = (*FEATURES, *ACCELERATORS, *OF_PROCESSES, *GUARDS)
    for side, seam in SEAMS.items():
        seam.use(filter(None, (getattr(one, side) for one in every)))
    OF_FRAMES.use(CALLERS)
