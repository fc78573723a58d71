"""A shop for the month of ``month.py``, in many releases: GROCERY_RELEASE is the number of one."""
