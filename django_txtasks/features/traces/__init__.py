"""Tracers."""
