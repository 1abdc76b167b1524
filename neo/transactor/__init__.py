"""The transactor: a replicated log. Its members agree on one specification per transaction number.

It knows nothing of NEO. Bottom up: :mod:`consensus` (one transaction, Chandra and Toueg's algorithm),
:mod:`engine` (the sequence of transactions, catch-up, membership: the core that a process embeds),
:mod:`tlog` and :mod:`mlog` (disk), :mod:`links` (network), :mod:`text` and :mod:`service` (application
servers), :mod:`daemon` (the process), :mod:`client` (its library). See docs/transactor.md.
"""
