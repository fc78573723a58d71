"""The last log lines of an attempt, which the entry of its error keeps."""
