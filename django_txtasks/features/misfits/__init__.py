"""Tasks whose arguments do not fit the function wait for code that takes them."""
