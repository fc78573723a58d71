"""Pure rules without a database: lane rules, schedule rules, waits before a retry, payloads."""
