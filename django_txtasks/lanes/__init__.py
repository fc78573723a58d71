"""Lanes: limits that tasks of one customer or service share. Their rules are ``rules.lanes``."""
