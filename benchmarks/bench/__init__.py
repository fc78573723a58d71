"""A Django project of benchmark tasks: the example project with one more app, which is this package."""
