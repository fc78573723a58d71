"""Accelerators: without one of these modules, tasks run as well, and slower."""
