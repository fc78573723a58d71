"""The protocol as a model small enough to try every order of its steps: see test_model.py."""
