"""Several databases, one outcome: transactions that commit everywhere or nowhere (docs/prepared.md).

In the application, once::

    from neo.client import xa

    accounts = xa.DBAPIBranch("accounts", lambda: psycopg.connect("dbname=accounts"))
    both = xa.join(transaction.manager, [shop, stock, accounts], coordinator=shop)

Transactions of the manager that change two or more of them are then committed in two phases. What a crash
leaves is settled by :func:`resolve`, or by the command ``neoresolve``.
"""

from neo.client.xa.branches import Branch, DBAPIBranch, NEOBranch, Session
from neo.client.xa.joining import Coordination, join
from neo.client.xa.resolving import Settled, resolve

__all__ = [
    "Branch",
    "Coordination",
    "DBAPIBranch",
    "NEOBranch",
    "Session",
    "Settled",
    "join",
    "resolve",
]
