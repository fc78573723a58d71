"""Senders of hints with a thread of their own, for the broker and for database hints."""
