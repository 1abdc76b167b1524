"""A cluster that is a backup of another one (specification 13): the part of its master."""
