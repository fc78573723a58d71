"""Results of tasks: their states and ends, waiting for an end, and cancelling."""
