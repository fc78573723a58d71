"""Run one verb of one adapter."""

import importlib
import sys

if __name__ == "__main__":
    name, verb, *arguments = sys.argv[1:]
    getattr(importlib.import_module(f"peers.{name}"), verb)(*arguments)
