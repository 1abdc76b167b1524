"""Several masters, of which one serves (decision 25).

``election`` and ``lease`` decide, pure; ``epochs`` is what the log says; ``tenure`` is what a primary
has of its epoch. ``node`` is the process: a ``member`` of the log (``log``, ``folder``, ``links``,
``founding``) that is primary now and then. ``membership`` and ``serve_masters`` change who votes.
"""
