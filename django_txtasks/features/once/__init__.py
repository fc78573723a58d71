"""Keys of ``once``."""
