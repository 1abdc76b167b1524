"""Pack with garbage collection, and the size of the database."""
