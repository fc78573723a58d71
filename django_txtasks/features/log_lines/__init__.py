"""The last log lines of an attempt, which are kept if it fails."""
