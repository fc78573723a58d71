"""The cost of keeping finished tasks: drains with history and without.

python benchmarks/history.py [--tasks 20000] [--repeat 3] [--chart history.svg]
"""

from __future__ import annotations

import drains
import options
from drains import Case


def main() -> None:
    """Print the table."""
    arguments = options.parser(__doc__).parse_args()
    without, kept = (options.own(arguments, history=history) for history in ("off", "on"))
    cases = [Case(without.title, without), Case(kept.title, kept, base=without.title)]
    drains.report(cases, drains.measured(cases, arguments), arguments)


if __name__ == "__main__":
    main()
