"""The part of a storage node in operations (specification 27.15): its engine, the functions of steps."""
