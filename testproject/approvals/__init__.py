"""People as workers: orders above 1,000 need an approval, and above 5,000 a second look by somebody else."""
