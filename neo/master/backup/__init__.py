"""A cluster that follows another one (specification, *Backup*): the master's part.

``following``: the stay in backup mode, and who is told; ``cells``: how far each cell is and what it
has to do next, pure; ``orders``: what storage nodes are at work on; ``upstream``: the connection to the
other cluster; ``readers``: what clients see; ``pack``: packs of the upstream cluster are done here, too;
``start`` and ``switching``: how backup mode is entered and left.
"""
