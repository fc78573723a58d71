"""What becomes of attempts on its way into the database."""
