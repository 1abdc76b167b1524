"""Demonstrate a cluster with real input: ``python -m examples.demo`` (docs/demo.md)."""
