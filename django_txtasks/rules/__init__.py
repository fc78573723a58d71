"""Pure rules, without a database: lanes, schedules, retries, payloads."""
