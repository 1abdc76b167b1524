"""Databases of a storage node: ``api`` is the contract, ``factory`` makes a backend by name."""
