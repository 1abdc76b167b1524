"""Transactions of a client: two-phase commit, waits for locks, prepared transactions, undo, restore."""
