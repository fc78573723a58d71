"""A shop whose tasks need the core alone."""
