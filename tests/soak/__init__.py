"""``make soak``: the search for bugs. It takes as long as one gives it, and gates nothing.

The suite draws the same numbers each time. The soak draws fresh ones: it runs *searches* in *rounds*, two
at once, until its time is over. Each failed round is kept with the command that repeats it.

* ``table``: the searches.
* ``scheduler``: which search runs next (pure).
* ``processes``: a round is a process group with an output file.
* ``summary``: what was found.
* ``soak``: the loop.
"""
