"""Lanes."""
