"""A storage node: keeps cells of the partition table. ``core`` is the node, ``locks`` its heart."""
