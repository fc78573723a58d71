"""Arms the process when it starts."""

from django.apps import AppConfig

from failpoints import points, slices, steps, waits


class FailPoints(AppConfig):
    """An app of the tests."""

    name = "failpoints"

    def ready(self) -> None:
        self.arm()

    def arm(self) -> None:
        """Hook the seam that the environment names, if it does."""
        points.arm()
        steps.arm()
        waits.arm()
        slices.arm()
