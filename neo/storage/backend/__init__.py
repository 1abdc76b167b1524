"""Where a storage node keeps its data. ``api`` is the contract, ``factory`` makes one by name."""
