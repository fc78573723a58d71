"""Running attempts: slots, their threads, connections and time limits, and cleaning after each attempt."""
