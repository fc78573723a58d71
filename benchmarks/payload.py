"""The cost of large arguments: drains of tasks with and without 10 kB of them.

python benchmarks/payload.py [--bytes 10000] [--tasks 20000] [--repeat 3] [--chart payload.svg]
"""

from __future__ import annotations

import drains
import options
from drains import Case


def main() -> None:
    """Print the table."""
    parser = options.parser(__doc__)
    parser.add_argument("--bytes", type=int, default=10_000)
    arguments = parser.parse_args()
    own = options.own(arguments)
    large = f"{own.title}, {arguments.bytes:,} bytes of arguments"
    cases = [Case(own.title, own), Case(large, own, size=arguments.bytes, base=own.title)]
    drains.report(cases, drains.measured(cases, arguments), arguments)


if __name__ == "__main__":
    main()
