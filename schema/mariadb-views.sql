-- Views for people who open the database with a shell: tids as UTC dates, ids as hexadecimal.
-- The node itself never reads them.

CREATE OR REPLACE VIEW show_pt AS SELECT
  `partition`,
  nid,
  CASE tid WHEN -1 THEN 'UP_TO_DATE' WHEN -2 THEN 'FEEDING' WHEN -3 THEN 'CORRUPTED'
    ELSE 'OUT_OF_DATE' END AS state,
  CASE WHEN tid > 0 THEN CONCAT_WS(' ', CONCAT_WS('-', LPAD((tid >> 32) DIV 535680 + 1900, 4, '0'),
    LPAD((tid >> 32) DIV 44640 MOD 12 + 1, 2, '0'), LPAD((tid >> 32) DIV 1440 MOD 31 + 1, 2, '0')),
    CONCAT_WS(':', LPAD((tid >> 32) DIV 60 MOD 24, 2, '0'), LPAD((tid >> 32) MOD 60, 2, '0'),
    LPAD(TRUNCATE((tid & 4294967295) * 60 / 4294967296, 3), 6, '0'))) END AS complete_up_to
  FROM pt ORDER BY `partition`, nid;

CREATE OR REPLACE VIEW show_trans AS SELECT
  `partition`,
  LOWER(LPAD(CONVERT(HEX(tid) USING ascii), 16, '0')) AS tid,
  CONCAT_WS(' ', CONCAT_WS('-', LPAD((tid >> 32) DIV 535680 + 1900, 4, '0'),
    LPAD((tid >> 32) DIV 44640 MOD 12 + 1, 2, '0'), LPAD((tid >> 32) DIV 1440 MOD 31 + 1, 2, '0')),
    CONCAT_WS(':', LPAD((tid >> 32) DIV 60 MOD 24, 2, '0'), LPAD((tid >> 32) MOD 60, 2, '0'),
    LPAD(TRUNCATE((tid & 4294967295) * 60 / 4294967296, 3), 6, '0'))) AS committed,
  LOWER(LPAD(CONVERT(HEX(ttid) USING ascii), 16, '0')) AS ttid,
  CONCAT_WS(' ', CONCAT_WS('-', LPAD((ttid >> 32) DIV 535680 + 1900, 4, '0'),
    LPAD((ttid >> 32) DIV 44640 MOD 12 + 1, 2, '0'), LPAD((ttid >> 32) DIV 1440 MOD 31 + 1, 2, '0')),
    CONCAT_WS(':', LPAD((ttid >> 32) DIV 60 MOD 24, 2, '0'), LPAD((ttid >> 32) MOD 60, 2, '0'),
    LPAD(TRUNCATE((ttid & 4294967295) * 60 / 4294967296, 3), 6, '0'))) AS begun,
  LENGTH(oids) DIV 8 AS objects,
  CONVERT(user USING utf8mb4) AS user,
  CONVERT(description USING utf8mb4) AS description,
  LOWER(CONVERT(HEX(oids) USING ascii)) AS oids,
  LOWER(CONVERT(HEX(ext) USING ascii)) AS ext
  FROM trans;

CREATE OR REPLACE VIEW show_ttrans AS SELECT
  `partition`,
  CASE WHEN tid IS NOT NULL THEN LOWER(LPAD(CONVERT(HEX(tid) USING ascii), 16, '0')) END AS tid,
  CASE WHEN tid IS NOT NULL THEN CONCAT_WS(' ', CONCAT_WS('-', LPAD((tid >> 32) DIV 535680 + 1900, 4, '0'),
    LPAD((tid >> 32) DIV 44640 MOD 12 + 1, 2, '0'), LPAD((tid >> 32) DIV 1440 MOD 31 + 1, 2, '0')),
    CONCAT_WS(':', LPAD((tid >> 32) DIV 60 MOD 24, 2, '0'), LPAD((tid >> 32) MOD 60, 2, '0'),
    LPAD(TRUNCATE((tid & 4294967295) * 60 / 4294967296, 3), 6, '0'))) END AS committed,
  LOWER(LPAD(CONVERT(HEX(ttid) USING ascii), 16, '0')) AS ttid,
  CONCAT_WS(' ', CONCAT_WS('-', LPAD((ttid >> 32) DIV 535680 + 1900, 4, '0'),
    LPAD((ttid >> 32) DIV 44640 MOD 12 + 1, 2, '0'), LPAD((ttid >> 32) DIV 1440 MOD 31 + 1, 2, '0')),
    CONCAT_WS(':', LPAD((ttid >> 32) DIV 60 MOD 24, 2, '0'), LPAD((ttid >> 32) MOD 60, 2, '0'),
    LPAD(TRUNCATE((ttid & 4294967295) * 60 / 4294967296, 3), 6, '0'))) AS begun,
  LENGTH(oids) DIV 8 AS objects,
  CONVERT(user USING utf8mb4) AS user,
  CONVERT(description USING utf8mb4) AS description,
  LOWER(CONVERT(HEX(oids) USING ascii)) AS oids,
  LOWER(CONVERT(HEX(ext) USING ascii)) AS ext
  FROM ttrans;

CREATE OR REPLACE VIEW show_obj AS SELECT
  `partition`,
  LOWER(LPAD(CONVERT(HEX(oid) USING ascii), 16, '0')) AS oid,
  LOWER(LPAD(CONVERT(HEX(tid) USING ascii), 16, '0')) AS tid,
  CONCAT_WS(' ', CONCAT_WS('-', LPAD((tid >> 32) DIV 535680 + 1900, 4, '0'),
    LPAD((tid >> 32) DIV 44640 MOD 12 + 1, 2, '0'), LPAD((tid >> 32) DIV 1440 MOD 31 + 1, 2, '0')),
    CONCAT_WS(':', LPAD((tid >> 32) DIV 60 MOD 24, 2, '0'), LPAD((tid >> 32) MOD 60, 2, '0'),
    LPAD(TRUNCATE((tid & 4294967295) * 60 / 4294967296, 3), 6, '0'))) AS committed,
  CASE WHEN data_id IS NOT NULL THEN LOWER(LPAD(CONVERT(HEX(data_id) USING ascii), 16, '0')) END AS data_id,
  LOWER(CONVERT(HEX(data.hash) USING ascii)) AS hash,
  data.compression & 127 AS compression,
  CASE WHEN data.compression >= 128 THEN CAST(CONV(HEX(SUBSTR(data.value, 5, 4)), 16, 10) AS UNSIGNED)
    ELSE LENGTH(data.value) END AS size,
  CASE WHEN value_tid IS NOT NULL THEN LOWER(LPAD(CONVERT(HEX(value_tid) USING ascii), 16, '0')) END AS value_tid,
  CASE WHEN value_tid IS NOT NULL THEN CONCAT_WS(' ', CONCAT_WS('-', LPAD((value_tid >> 32) DIV 535680 + 1900, 4, '0'),
    LPAD((value_tid >> 32) DIV 44640 MOD 12 + 1, 2, '0'), LPAD((value_tid >> 32) DIV 1440 MOD 31 + 1, 2, '0')),
    CONCAT_WS(':', LPAD((value_tid >> 32) DIV 60 MOD 24, 2, '0'), LPAD((value_tid >> 32) MOD 60, 2, '0'),
    LPAD(TRUNCATE((value_tid & 4294967295) * 60 / 4294967296, 3), 6, '0'))) END AS value_of
  FROM obj LEFT JOIN data ON data.id = data_id;

CREATE OR REPLACE VIEW show_tobj AS SELECT
  `partition`,
  LOWER(LPAD(CONVERT(HEX(oid) USING ascii), 16, '0')) AS oid,
  LOWER(LPAD(CONVERT(HEX(tid) USING ascii), 16, '0')) AS ttid,
  CONCAT_WS(' ', CONCAT_WS('-', LPAD((tid >> 32) DIV 535680 + 1900, 4, '0'),
    LPAD((tid >> 32) DIV 44640 MOD 12 + 1, 2, '0'), LPAD((tid >> 32) DIV 1440 MOD 31 + 1, 2, '0')),
    CONCAT_WS(':', LPAD((tid >> 32) DIV 60 MOD 24, 2, '0'), LPAD((tid >> 32) MOD 60, 2, '0'),
    LPAD(TRUNCATE((tid & 4294967295) * 60 / 4294967296, 3), 6, '0'))) AS begun,
  CASE WHEN data_id IS NOT NULL THEN LOWER(LPAD(CONVERT(HEX(data_id) USING ascii), 16, '0')) END AS data_id,
  LOWER(CONVERT(HEX(data.hash) USING ascii)) AS hash,
  data.compression & 127 AS compression,
  CASE WHEN data.compression >= 128 THEN CAST(CONV(HEX(SUBSTR(data.value, 5, 4)), 16, 10) AS UNSIGNED)
    ELSE LENGTH(data.value) END AS size,
  CASE WHEN value_tid IS NOT NULL THEN LOWER(LPAD(CONVERT(HEX(value_tid) USING ascii), 16, '0')) END AS value_tid,
  CASE WHEN value_tid IS NOT NULL THEN CONCAT_WS(' ', CONCAT_WS('-', LPAD((value_tid >> 32) DIV 535680 + 1900, 4, '0'),
    LPAD((value_tid >> 32) DIV 44640 MOD 12 + 1, 2, '0'), LPAD((value_tid >> 32) DIV 1440 MOD 31 + 1, 2, '0')),
    CONCAT_WS(':', LPAD((value_tid >> 32) DIV 60 MOD 24, 2, '0'), LPAD((value_tid >> 32) MOD 60, 2, '0'),
    LPAD(TRUNCATE((value_tid & 4294967295) * 60 / 4294967296, 3), 6, '0'))) END AS value_of
  FROM tobj LEFT JOIN data ON data.id = data_id;

CREATE OR REPLACE VIEW show_data AS SELECT
  LOWER(LPAD(CONVERT(HEX(id) USING ascii), 16, '0')) AS id,
  id >> 48 & 65535 AS `partition`,
  LOWER(CONVERT(HEX(hash) USING ascii)) AS hash,
  data.compression & 127 AS compression,
  CASE WHEN data.compression >= 128 THEN CAST(CONV(HEX(SUBSTR(data.value, 5, 4)), 16, 10) AS UNSIGNED)
    ELSE LENGTH(data.value) END AS size
  FROM data;

CREATE OR REPLACE VIEW show_prepared AS SELECT
  CONVERT(xid USING utf8mb4) AS xid,
  LOWER(LPAD(CONVERT(HEX(ttid) USING ascii), 16, '0')) AS ttid,
  TIMESTAMP'1970-01-01 00:00:00.000' + INTERVAL since * 1000000 MICROSECOND AS since,
  CONVERT(text USING utf8mb4) AS text,
  LENGTH(partitions) DIV 2 AS partitions,
  (SELECT COUNT(*) FROM tobj WHERE tobj.tid = prepared.ttid) AS stored,
  (SELECT COUNT(*) FROM prepared_check WHERE prepared_check.ttid = prepared.ttid) AS checked
  FROM prepared ORDER BY prepared.since;

CREATE OR REPLACE VIEW show_decided AS SELECT
  CONVERT(xid USING utf8mb4) AS xid,
  LOWER(LPAD(CONVERT(HEX(ttid) USING ascii), 16, '0')) AS ttid,
  CASE WHEN tid IS NOT NULL THEN LOWER(LPAD(CONVERT(HEX(tid) USING ascii), 16, '0')) END AS tid,
  CASE WHEN tid IS NULL THEN 'rolled back' ELSE 'committed' END AS outcome,
  TIMESTAMP'1970-01-01 00:00:00.000' + INTERVAL time * 1000000 MICROSECOND AS decided
  FROM decided ORDER BY decided.time;

CREATE OR REPLACE VIEW show_content AS SELECT
  `partition`,
  LOWER(LPAD(CONVERT(HEX(oid) USING ascii), 16, '0')) AS oid,
  LOWER(LPAD(CONVERT(HEX(tid) USING ascii), 16, '0')) AS tid,
  CONCAT_WS(' ', CONCAT_WS('-', LPAD((tid >> 32) DIV 535680 + 1900, 4, '0'),
    LPAD((tid >> 32) DIV 44640 MOD 12 + 1, 2, '0'), LPAD((tid >> 32) DIV 1440 MOD 31 + 1, 2, '0')),
    CONCAT_WS(':', LPAD((tid >> 32) DIV 60 MOD 24, 2, '0'), LPAD((tid >> 32) MOD 60, 2, '0'),
    LPAD(TRUNCATE((tid & 4294967295) * 60 / 4294967296, 3), 6, '0'))) AS committed,
  size,
  LOWER(CONVERT(HEX(checksum) USING ascii)) AS checksum
  FROM content JOIN obj ON obj.data_id = content.data_id;
