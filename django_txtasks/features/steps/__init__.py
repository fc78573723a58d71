"""Steps of long tasks."""
