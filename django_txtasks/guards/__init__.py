"""Guards: each protects a process from what the code of tasks, and people, may do to it."""
