"""Several nodes of one machine in one process: see :mod:`neo.server.__main__`."""
