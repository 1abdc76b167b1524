"""Several masters, one of which is primary (decision 25).

``election`` and ``lease`` decide; ``epochs`` is the state in the log; both are pure. ``node`` is the
core of the process: a ``member`` of the log (``log``, ``folder``, ``links``, ``founding``) that is
primary in some epochs. ``leadership`` belongs to a primary. ``membership`` and ``serve_masters`` change
the members.
"""
