"""The transactor: a replicated log. Its members agree on one specification per transaction number.

It knows nothing of NEO; see docs/transactor.md. Masters of a NEO cluster embed 17 of its modules. Bottom
up:

* The core: :mod:`messages`, :mod:`codec`, :mod:`members`, :mod:`durable` (what an engine starts with),
  :mod:`outbox`, :mod:`detector`, :mod:`fairness`, :mod:`learner`, :mod:`consensus` (one transaction, by
  Chandra and Toueg's algorithm), :mod:`catchup`, :mod:`engine` (the sequence of transactions).
* Its disk: :mod:`disk`, :mod:`frames`, :mod:`mlog`, :mod:`tlog`, :mod:`store`, and :mod:`node`, an engine
  whose promises leave when they are durable.

The others are the stand-alone system, the command ``transactor``, with a network and clients of its own:
:mod:`sealing`, :mod:`links` and :mod:`sockets` (peers), :mod:`text`, :mod:`session`, :mod:`service`,
:mod:`admin` and :mod:`debug` (ports of application servers and operators), :mod:`config`, :mod:`daemon`
(the process), :mod:`client` (its library), :mod:`example`.
"""
