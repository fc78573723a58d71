"""The core enqueues, claims, runs, finishes, retries, compensates, recovers and prunes. It imports no feature."""
