"""The environment of a client: sockets, threads and the clock, with or without gevent."""
