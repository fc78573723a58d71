"""Reports of a cleaner for people: claims that are held for long, and names that no worker declares."""
