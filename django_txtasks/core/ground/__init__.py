"""Small modules that import no other room of the core."""
