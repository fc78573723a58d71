"""A database backend of a vendor on which tasks do not run: SQLite under another name."""
