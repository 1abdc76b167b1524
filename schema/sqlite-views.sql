-- Views for people who open the database with a shell: tids as UTC dates, ids as hexadecimal.
-- The node itself never reads them.

CREATE VIEW IF NOT EXISTS show_pt AS SELECT
  `partition`,
  nid,
  CASE tid WHEN -1 THEN 'UP_TO_DATE' WHEN -2 THEN 'FEEDING' WHEN -3 THEN 'CORRUPTED'
    ELSE 'OUT_OF_DATE' END AS state,
  CASE WHEN tid > 0 THEN printf('%04d-%02d-%02d %02d:%02d:%06.3f', (tid >> 32) / 535680 + 1900,
    (tid >> 32) / 44640 % 12 + 1, (tid >> 32) / 1440 % 31 + 1, (tid >> 32) / 60 % 24,
    (tid >> 32) % 60, (tid & 4294967295) * 60.0 / 4294967296) END AS complete_up_to
  FROM pt ORDER BY `partition`, nid;

CREATE VIEW IF NOT EXISTS show_trans AS SELECT
  `partition`,
  printf('%016x', tid) AS tid,
  printf('%04d-%02d-%02d %02d:%02d:%06.3f', (tid >> 32) / 535680 + 1900,
    (tid >> 32) / 44640 % 12 + 1, (tid >> 32) / 1440 % 31 + 1, (tid >> 32) / 60 % 24,
    (tid >> 32) % 60, (tid & 4294967295) * 60.0 / 4294967296) AS committed,
  printf('%016x', ttid) AS ttid,
  printf('%04d-%02d-%02d %02d:%02d:%06.3f', (ttid >> 32) / 535680 + 1900,
    (ttid >> 32) / 44640 % 12 + 1, (ttid >> 32) / 1440 % 31 + 1, (ttid >> 32) / 60 % 24,
    (ttid >> 32) % 60, (ttid & 4294967295) * 60.0 / 4294967296) AS begun,
  LENGTH(oids) / 8 AS objects,
  CAST(user AS TEXT) AS user,
  CAST(description AS TEXT) AS description,
  LOWER(HEX(oids)) AS oids,
  LOWER(HEX(ext)) AS ext
  FROM trans;

CREATE VIEW IF NOT EXISTS show_ttrans AS SELECT
  `partition`,
  CASE WHEN tid IS NOT NULL THEN printf('%016x', tid) END AS tid,
  CASE WHEN tid IS NOT NULL THEN printf('%04d-%02d-%02d %02d:%02d:%06.3f', (tid >> 32) / 535680 + 1900,
    (tid >> 32) / 44640 % 12 + 1, (tid >> 32) / 1440 % 31 + 1, (tid >> 32) / 60 % 24,
    (tid >> 32) % 60, (tid & 4294967295) * 60.0 / 4294967296) END AS committed,
  printf('%016x', ttid) AS ttid,
  printf('%04d-%02d-%02d %02d:%02d:%06.3f', (ttid >> 32) / 535680 + 1900,
    (ttid >> 32) / 44640 % 12 + 1, (ttid >> 32) / 1440 % 31 + 1, (ttid >> 32) / 60 % 24,
    (ttid >> 32) % 60, (ttid & 4294967295) * 60.0 / 4294967296) AS begun,
  LENGTH(oids) / 8 AS objects,
  CAST(user AS TEXT) AS user,
  CAST(description AS TEXT) AS description,
  LOWER(HEX(oids)) AS oids,
  LOWER(HEX(ext)) AS ext
  FROM ttrans;

CREATE VIEW IF NOT EXISTS show_obj AS SELECT
  `partition`,
  printf('%016x', oid) AS oid,
  printf('%016x', tid) AS tid,
  printf('%04d-%02d-%02d %02d:%02d:%06.3f', (tid >> 32) / 535680 + 1900,
    (tid >> 32) / 44640 % 12 + 1, (tid >> 32) / 1440 % 31 + 1, (tid >> 32) / 60 % 24,
    (tid >> 32) % 60, (tid & 4294967295) * 60.0 / 4294967296) AS committed,
  CASE WHEN data_id IS NOT NULL THEN printf('%016x', data_id) END AS data_id,
  LOWER(HEX(data.hash)) AS hash,
  data.compression AS compression,
  LENGTH(data.value) AS size,
  CASE WHEN value_tid IS NOT NULL THEN printf('%016x', value_tid) END AS value_tid,
  CASE WHEN value_tid IS NOT NULL THEN printf('%04d-%02d-%02d %02d:%02d:%06.3f', (value_tid >> 32) / 535680 + 1900,
    (value_tid >> 32) / 44640 % 12 + 1, (value_tid >> 32) / 1440 % 31 + 1, (value_tid >> 32) / 60 % 24,
    (value_tid >> 32) % 60, (value_tid & 4294967295) * 60.0 / 4294967296) END AS value_of
  FROM obj LEFT JOIN data ON data.id = data_id;

CREATE VIEW IF NOT EXISTS show_tobj AS SELECT
  `partition`,
  printf('%016x', oid) AS oid,
  printf('%016x', tid) AS ttid,
  printf('%04d-%02d-%02d %02d:%02d:%06.3f', (tid >> 32) / 535680 + 1900,
    (tid >> 32) / 44640 % 12 + 1, (tid >> 32) / 1440 % 31 + 1, (tid >> 32) / 60 % 24,
    (tid >> 32) % 60, (tid & 4294967295) * 60.0 / 4294967296) AS begun,
  CASE WHEN data_id IS NOT NULL THEN printf('%016x', data_id) END AS data_id,
  LOWER(HEX(data.hash)) AS hash,
  data.compression AS compression,
  LENGTH(data.value) AS size,
  CASE WHEN value_tid IS NOT NULL THEN printf('%016x', value_tid) END AS value_tid,
  CASE WHEN value_tid IS NOT NULL THEN printf('%04d-%02d-%02d %02d:%02d:%06.3f', (value_tid >> 32) / 535680 + 1900,
    (value_tid >> 32) / 44640 % 12 + 1, (value_tid >> 32) / 1440 % 31 + 1, (value_tid >> 32) / 60 % 24,
    (value_tid >> 32) % 60, (value_tid & 4294967295) * 60.0 / 4294967296) END AS value_of
  FROM tobj LEFT JOIN data ON data.id = data_id;

CREATE VIEW IF NOT EXISTS show_data AS SELECT
  printf('%016x', id) AS id,
  id >> 48 & 65535 AS `partition`,
  LOWER(HEX(hash)) AS hash,
  data.compression AS compression,
  LENGTH(data.value) AS size
  FROM data;

CREATE VIEW IF NOT EXISTS show_prepared AS SELECT
  CAST(xid AS TEXT) AS xid,
  printf('%016x', ttid) AS ttid,
  strftime('%Y-%m-%d %H:%M:%f', since, 'unixepoch') AS since,
  CAST(text AS TEXT) AS text,
  LENGTH(partitions) / 2 AS partitions,
  (SELECT COUNT(*) FROM tobj WHERE tobj.tid = prepared.ttid) AS stored,
  (SELECT COUNT(*) FROM prepared_check WHERE prepared_check.ttid = prepared.ttid) AS checked
  FROM prepared ORDER BY since;

CREATE VIEW IF NOT EXISTS show_decided AS SELECT
  CAST(xid AS TEXT) AS xid,
  printf('%016x', ttid) AS ttid,
  CASE WHEN tid IS NOT NULL THEN printf('%016x', tid) END AS tid,
  CASE WHEN tid IS NULL THEN 'rolled back' ELSE 'committed' END AS outcome,
  strftime('%Y-%m-%d %H:%M:%f', time, 'unixepoch') AS decided
  FROM decided ORDER BY time;

CREATE VIEW IF NOT EXISTS show_content AS SELECT
  `partition`,
  printf('%016x', oid) AS oid,
  printf('%016x', tid) AS tid,
  printf('%04d-%02d-%02d %02d:%02d:%06.3f', (tid >> 32) / 535680 + 1900,
    (tid >> 32) / 44640 % 12 + 1, (tid >> 32) / 1440 % 31 + 1, (tid >> 32) / 60 % 24,
    (tid >> 32) % 60, (tid & 4294967295) * 60.0 / 4294967296) AS committed,
  size,
  LOWER(HEX(checksum)) AS checksum
  FROM content JOIN obj ON obj.data_id = content.data_id;
