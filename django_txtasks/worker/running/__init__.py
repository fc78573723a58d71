"""Attempts at work: slots, their threads, connections and limits, and what a task may leave in them."""
