"""The way of a stranger: from a clean Debian to a cluster of three machines. Part of ``make soak``."""
