"""The floor on which everything with SQL stands: dialects, transactions, time limits, errors. It knows no task."""
