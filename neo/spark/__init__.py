"""A NEO database in Spark and in Parquet (DESIGN, *Spark*).

* ``tables``: the tables and their columns
* ``rows``: revisions → Arrow batches
* ``reading``: one partition of one table

Nothing here imports pyspark but the modules that Spark loads.
"""
