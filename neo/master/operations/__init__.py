"""The primary master as the initiator of operations (specification 27.1): its log, its way to the storage
nodes, and the kinds of operations."""
