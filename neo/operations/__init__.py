"""Operations: maintenance in steps on several peers, which happens as a whole or not at all
(specification 27.1).

* ``model``: an operation and its steps; ``entries``: what is written into the log about it
* ``namespace``: the state that the entries make, equal on all who apply them
* ``engine``: one peer executes its steps, and undoes them; ``initiator``: the primary begins operations,
  watches them, decides their outcome, and cleans up

The package knows nothing of NEO. It does no input and output, and starts no thread; the time is given to
it. Peers are numbers.
"""
