"""Events: functions that are enqueued when something is published."""
