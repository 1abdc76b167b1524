-- Tables of a storage node in MariaDB, format version 3 (specification 14).
-- This file is what the node executes, with the engine set by default_storage_engine.

-- Metadata of the database: name, nid, ptid, replicas, version, truncate_tid, backup_tid, _pack_tid.
CREATE TABLE IF NOT EXISTS config (
  name VARBINARY(255) NOT NULL PRIMARY KEY,
  value VARBINARY(255) NULL
);

-- Partition table. tid: -1 UP_TO_DATE, -2 FEEDING, -3 CORRUPTED;
-- 0 or more: OUT_OF_DATE, with all data up to this tid.
CREATE TABLE IF NOT EXISTS pt (
  `partition` SMALLINT UNSIGNED NOT NULL,
  nid INT NOT NULL,
  tid BIGINT NOT NULL,
  PRIMARY KEY (`partition`, nid)
);

-- Committed transactions. partition = tid modulo the number of partitions.
CREATE TABLE IF NOT EXISTS trans (
  `partition` SMALLINT UNSIGNED NOT NULL,
  tid BIGINT UNSIGNED NOT NULL,
  packed BOOLEAN NOT NULL,
  oids MEDIUMBLOB NOT NULL,
  user BLOB NOT NULL,
  description BLOB NOT NULL,
  ext BLOB NOT NULL,
  ttid BIGINT UNSIGNED NOT NULL,
  PRIMARY KEY (`partition`, tid)
);

-- Committed revisions of objects. partition = oid modulo the number of partitions.
-- data_id NULL: the creation of the object was undone. value_tid: the serial an undo went back to.
CREATE TABLE IF NOT EXISTS obj (
  `partition` SMALLINT UNSIGNED NOT NULL,
  oid BIGINT UNSIGNED NOT NULL,
  tid BIGINT UNSIGNED NOT NULL,
  data_id BIGINT UNSIGNED NULL,
  value_tid BIGINT UNSIGNED NULL,
  PRIMARY KEY (`partition`, oid, tid),
  KEY tid (`partition`, tid, oid),
  KEY (data_id)
);

-- Content of objects. id: the partition of the oid in the high 16 bits, a counter in the low 48.
-- hash: SHA-1 of the value as stored. compression: 0 none, 1 zlib; with bit 0x80 the value is in
-- bigdata, and `value` is two big-endian 32-bit integers: the first bigdata.id, the total length.
CREATE TABLE IF NOT EXISTS data (
  id BIGINT UNSIGNED NOT NULL PRIMARY KEY,
  hash BINARY(20) NOT NULL,
  compression TINYINT UNSIGNED NULL,
  value LONGBLOB NOT NULL
);

-- Values of 16 MiB and more, in pieces of 8 MiB with consecutive ids.
CREATE TABLE IF NOT EXISTS bigdata (
  id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  value MEDIUMBLOB NOT NULL
);

-- Voted transactions: the same as trans, with tid NULL until the transaction is locked.
CREATE TABLE IF NOT EXISTS ttrans (
  `partition` SMALLINT UNSIGNED NOT NULL,
  tid BIGINT UNSIGNED NULL,
  packed BOOLEAN NOT NULL,
  oids MEDIUMBLOB NOT NULL,
  user BLOB NOT NULL,
  description BLOB NOT NULL,
  ext BLOB NOT NULL,
  ttid BIGINT UNSIGNED NOT NULL,
  PRIMARY KEY (ttid)
);

-- Objects of voted transactions: the same as obj, where tid is the ttid.
CREATE TABLE IF NOT EXISTS tobj (
  `partition` SMALLINT UNSIGNED NOT NULL,
  oid BIGINT UNSIGNED NOT NULL,
  tid BIGINT UNSIGNED NOT NULL,
  data_id BIGINT UNSIGNED NULL,
  value_tid BIGINT UNSIGNED NULL,
  PRIMARY KEY (tid, oid)
);

-- Prepared transactions (specification 24): the marks of voted ones. partitions: all partitions of the
-- transaction, two big-endian bytes for each. since: seconds since 1970.
CREATE TABLE IF NOT EXISTS prepared (
  ttid BIGINT UNSIGNED NOT NULL PRIMARY KEY,
  xid VARBINARY(140) NOT NULL,
  since DOUBLE NOT NULL,
  text BLOB NOT NULL,
  partitions MEDIUMBLOB NOT NULL
);

-- Objects that prepared transactions check, with the serial that they saw.
CREATE TABLE IF NOT EXISTS prepared_check (
  ttid BIGINT UNSIGNED NOT NULL,
  oid BIGINT UNSIGNED NOT NULL,
  serial BIGINT UNSIGNED NOT NULL,
  PRIMARY KEY (ttid, oid)
);

-- Outcomes of prepared transactions. tid NULL: rolled back. time: seconds since 1970.
CREATE TABLE IF NOT EXISTS decided (
  xid VARBINARY(140) NOT NULL PRIMARY KEY,
  ttid BIGINT UNSIGNED NOT NULL,
  tid BIGINT UNSIGNED NULL,
  time DOUBLE NOT NULL
);

-- Contents of blobs (specification 26): the values of data that refer to one, by its BLAKE3 checksum.
CREATE TABLE IF NOT EXISTS content (
  data_id BIGINT UNSIGNED NOT NULL PRIMARY KEY,
  checksum BINARY(32) NOT NULL,
  size BIGINT UNSIGNED NOT NULL,
  KEY (checksum)
);

-- The journal of operations (specification 27.15): those in which this node has a part, in MessagePack.
CREATE TABLE IF NOT EXISTS operation (
  id BIGINT UNSIGNED NOT NULL PRIMARY KEY,
  body MEDIUMBLOB NOT NULL
);

-- How far each step is. state: 0 begun, 1 done. undo_data: what the undo of the step needs.
-- context: what the step tells the others.
CREATE TABLE IF NOT EXISTS operation_step (
  id BIGINT UNSIGNED NOT NULL,
  step SMALLINT UNSIGNED NOT NULL,
  state TINYINT UNSIGNED NOT NULL,
  undo_data MEDIUMBLOB NOT NULL,
  context MEDIUMBLOB NOT NULL,
  PRIMARY KEY (id, step)
);
