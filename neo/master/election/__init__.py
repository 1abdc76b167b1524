"""Several masters, one of which is primary (decision 25).

``election`` and ``lease`` decide; ``epochs`` is the state in the log; all are pure. ``node`` is the
core of the process. It has a ``member`` of the log (``log``, ``folder``, ``links``, ``founding``), and
with the log a ``candidate``, which is primary in some epochs. ``leadership`` belongs to a primary;
``commands`` has the commands about masters.
"""
