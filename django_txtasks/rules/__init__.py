"""Logic that needs no database: lanes, schedules, retries, payloads."""
