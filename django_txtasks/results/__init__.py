"""Results of tasks: their state, waiting for their end, and their cancelling."""
