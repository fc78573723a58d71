"""A small shop for the trial of ``incidents.py``, in two releases, ``a`` and ``b``: BAKERY_RELEASE names one."""
