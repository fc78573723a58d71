"""The processes of ``runworkers``: supervisor, forks, recycling, shutdown and probes."""
