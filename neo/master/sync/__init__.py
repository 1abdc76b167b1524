"""The master of a synchronous backup takes part in the upstream cluster's commits (specification 25)."""
