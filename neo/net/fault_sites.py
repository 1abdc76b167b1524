"""Places in the code where the simulator injects rare events on purpose.

After the *buggify* of FoundationDB. At a site the code asks its host ``fault(site)``, which is always
False in production. The protocol allows each of these events at any time, so the other nodes must cope.
"""

from __future__ import annotations

from enum import StrEnum


class FaultSite(StrEnum):
    """The event of each place. The stories of the simulator show the values."""

    #: A storage node executes a read after later reads.
    READ_LATE = "a read is late"
    #: A storage node answers a read, with its data, after the answers to later reads.
    READ_ANSWER_LATE = "the answer to a read is late"
    #: The answer to a vote, lock or recovery leaves a while after the data is durable.
    STORED_ANSWER_LATE = "an answer that data is durable is late"
    #: The connection of a client ends before its vote is executed.
    CLIENT_DROPPED_BEFORE_VOTE = "the client is disconnected before its vote"
    #: The database fails when a transaction is to be locked: the node starts again.
    DATABASE_FAILS_AT_LOCK = "the database fails at a lock"
    #: A pack or another long job stands still between two steps.
    JOB_STANDS_STILL = "a job stands still"
    #: The master lets transactions begin later.
    BEGIN_LATE = "a begin is late"
    #: The master finishes transactions some time after all storage nodes locked them.
    FINISH_LATE = "a finish is late"
    #: The master tells a client of its deadlock later.
    DEADLOCK_LATE = "news of a deadlock are late"
    #: A client closes its connection to one of the transaction's storage nodes before it votes.
    STORAGE_LOST_BEFORE_VOTE = "a storage connection is lost before the vote"
    #: A client closes its connection to one of the transaction's storage nodes after it has voted.
    STORAGE_LOST_AFTER_VOTE = "a storage connection is lost after the vote"
    #: A client closes its connection to the master when it has asked to finish.
    MASTER_LOST_IN_FINISH = "the master connection is lost in tpc_finish"
    #: The storage's cache is emptied while an object is loaded.
    CACHE_EMPTIED = "the cache is emptied"
    #: The leader on a connection hands the lead to another thread.
    LEAD_HANDED_OVER = "the lead of a channel is handed over"


#: Delay of late events, in seconds: some round trips.
LATE_SECONDS = 0.02
