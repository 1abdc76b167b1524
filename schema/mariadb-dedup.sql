-- With deduplication: the same content is stored once.
CREATE UNIQUE INDEX IF NOT EXISTS `hash` ON data (hash, compression);
