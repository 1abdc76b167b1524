"""Contracts kept as data: the tables of each backend, read by the code that executes them."""
