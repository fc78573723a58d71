"""Parts that a site may leave out: the core imports nothing of them."""
