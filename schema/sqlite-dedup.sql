-- With deduplication: the same content is stored once.
CREATE UNIQUE INDEX IF NOT EXISTS _data_i1 ON data (hash, compression);
