"""Demonstrate a cluster with real input: ``python -m neo.demo`` (docs/demo.md)."""
