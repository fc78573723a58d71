"""What a site may leave out: the core imports nothing of it."""
