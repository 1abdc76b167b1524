"""A cluster that is a backup of another one (specification 13): the part of its master.

=============  ==========================================================================================
``mode``       enters and leaves backup mode
``following``  one stay in backup mode
``cells``      the progress of each cell and its next step; pure
``orders``     what storage nodes were told to fetch
``upstream``   the connection to the upstream cluster
``contact``    whether the upstream cluster answers
``readers``    invalidations for the clients of the backup
``pack``       packs of the upstream cluster, which are done here, too
``memory``     what storage nodes remember of a backup
=============  ==========================================================================================
"""
