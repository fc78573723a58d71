"""Links to business objects."""
