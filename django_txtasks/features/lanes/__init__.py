"""Lanes: limits that the tasks of one customer or service share."""
