"""OpenTelemetry: spans of enqueueing and of attempts, and three metrics. Needs ``opentelemetry-api`` alone."""
