"""Figures of queues and functions."""
