"""A database in a folder, inside the application's process: no server, no socket.

>>> import neo.embedded
>>> storage = neo.embedded.open("/var/lib/site")  # doctest: +SKIP

It is a small cluster, of which all nodes run in one thread of this process (:mod:`neo.embedded.machine`).
``neosimple --folder`` serves the same folder to other processes, and back.
"""

from neo.embedded.opening import open

__all__ = ["open"]
