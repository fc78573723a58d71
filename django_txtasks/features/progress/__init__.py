"""The progress that tasks report."""
