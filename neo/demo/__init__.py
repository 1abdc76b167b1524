"""A cluster at work on real input: ``python -m neo.demo`` (see docs/demo.md)."""
