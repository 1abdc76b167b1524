-- Tables of a storage node in SQLite, format version 3 (specification 14).
-- This file is what the node executes. Oids, tids and ttids are 64-bit integers below 2^63.

-- Metadata of the database: name, nid, ptid, replicas, version, truncate_tid, backup_tid, _pack_tid.
CREATE TABLE IF NOT EXISTS config (
  name TEXT NOT NULL PRIMARY KEY,
  value TEXT
);

-- Partition table. tid: -1 UP_TO_DATE, -2 FEEDING, -3 CORRUPTED;
-- 0 or more: OUT_OF_DATE, with all data up to this tid.
CREATE TABLE IF NOT EXISTS pt (
  partition INTEGER NOT NULL,
  nid INTEGER NOT NULL,
  tid INTEGER NOT NULL,
  PRIMARY KEY (partition, nid)
);

-- Committed transactions. partition = tid modulo the number of partitions.
CREATE TABLE IF NOT EXISTS trans (
  partition INTEGER NOT NULL,
  tid INTEGER NOT NULL,
  packed BOOLEAN NOT NULL,
  oids BLOB NOT NULL,
  user BLOB NOT NULL,
  description BLOB NOT NULL,
  ext BLOB NOT NULL,
  ttid INTEGER NOT NULL,
  PRIMARY KEY (partition, tid)
) WITHOUT ROWID;

-- Committed revisions of objects. partition = oid modulo the number of partitions.
-- data_id NULL: the creation of the object was undone. value_tid: the serial an undo went back to.
CREATE TABLE IF NOT EXISTS obj (
  partition INTEGER NOT NULL,
  oid INTEGER NOT NULL,
  tid INTEGER NOT NULL,
  data_id INTEGER,
  value_tid INTEGER,
  PRIMARY KEY (partition, oid, tid)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS _obj_i1 ON obj (partition, tid, oid);
CREATE INDEX IF NOT EXISTS _obj_i2 ON obj (data_id);

-- Content of objects. id: the partition of the oid in the high 16 bits, a counter in the low 48.
-- hash: SHA-1 of the value as stored. compression: 0 none, 1 zlib.
CREATE TABLE IF NOT EXISTS data (
  id INTEGER PRIMARY KEY,
  hash BLOB NOT NULL,
  compression INTEGER NOT NULL,
  value BLOB NOT NULL
);

-- Voted transactions: the same as trans, with tid NULL until the transaction is locked.
CREATE TABLE IF NOT EXISTS ttrans (
  partition INTEGER NOT NULL,
  tid INTEGER,
  packed BOOLEAN NOT NULL,
  oids BLOB NOT NULL,
  user BLOB NOT NULL,
  description BLOB NOT NULL,
  ext BLOB NOT NULL,
  ttid INTEGER NOT NULL
);

-- Objects of voted transactions: the same as obj, where tid is the ttid.
CREATE TABLE IF NOT EXISTS tobj (
  partition INTEGER NOT NULL,
  oid INTEGER NOT NULL,
  tid INTEGER NOT NULL,
  data_id INTEGER,
  value_tid INTEGER,
  PRIMARY KEY (tid, oid)
);

-- Prepared transactions (specification 24): the marks of voted ones. partitions: all partitions of the
-- transaction, two big-endian bytes for each. since: seconds since 1970.
CREATE TABLE IF NOT EXISTS prepared (
  ttid INTEGER PRIMARY KEY,
  xid BLOB NOT NULL,
  since REAL NOT NULL,
  text BLOB NOT NULL,
  partitions BLOB NOT NULL
);

-- Objects that prepared transactions check, with the serial that they saw.
CREATE TABLE IF NOT EXISTS prepared_check (
  ttid INTEGER NOT NULL,
  oid INTEGER NOT NULL,
  serial INTEGER NOT NULL,
  PRIMARY KEY (ttid, oid)
) WITHOUT ROWID;

-- Outcomes of prepared transactions. tid NULL: rolled back. time: seconds since 1970.
CREATE TABLE IF NOT EXISTS decided (
  xid BLOB NOT NULL PRIMARY KEY,
  ttid INTEGER NOT NULL,
  tid INTEGER,
  time REAL NOT NULL
) WITHOUT ROWID;

-- Contents of blobs (specification 26): the values of data that refer to one, by its BLAKE3 checksum.
CREATE TABLE IF NOT EXISTS content (
  data_id INTEGER PRIMARY KEY,
  checksum BLOB NOT NULL,
  size INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS _content_i1 ON content (checksum);

-- The journal of operations (specification 27.15): those in which this node has a part, in MessagePack.
CREATE TABLE IF NOT EXISTS operation (
  id INTEGER PRIMARY KEY,
  body BLOB NOT NULL
);

-- How far each step is. state: 0 begun, 1 done. undo_data: what the undo of the step needs.
-- context: what the step tells the others.
CREATE TABLE IF NOT EXISTS operation_step (
  id INTEGER NOT NULL,
  step INTEGER NOT NULL,
  state INTEGER NOT NULL,
  undo_data BLOB NOT NULL,
  context BLOB NOT NULL,
  PRIMARY KEY (id, step)
) WITHOUT ROWID;
