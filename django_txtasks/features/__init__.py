"""The features, which can be left out of the package: one folder for each. See ``assembly``."""
