"""The two pipes between a supervisor and one child: orders go there, signs of life come back."""

from __future__ import annotations

import contextlib
import os

from django_txtasks.processes.signs import Hearing, new_pipe


class Pipes:
    """Both pipes with all four ends; each process closes the ends of the other one.

    Attributes:
        orders: reading end of the orders, for the child.
        signs: writing end of the signs of life, for the child.
        hearing: what the supervisor hears.

    Raises:
        OSError: too many files are open.
    """

    def __init__(self) -> None:
        self.orders, self._order = os.pipe()
        try:
            ear, self.signs = new_pipe()
        except OSError:
            os.close(self.orders)
            os.close(self._order)
            raise
        self.hearing = Hearing(ear)

    def order(self, order: bytes) -> None:
        """Send an order. A child that has ended does not need it."""
        with contextlib.suppress(OSError):
            os.write(self._order, order)

    def close_childs_ends(self) -> None:
        """Close the ends that the child uses."""
        os.close(self.orders)
        os.close(self.signs)

    def close_supervisors_ends(self) -> None:
        """Close the ends that the supervisor uses. Their end means for the child that the supervisor is gone."""
        os.close(self._order)
        self.hearing.close()
