-- Bytes of a run, by measurement (docs/bench/analytics.md#bytes).
--
-- No statement reads the column base, which cost 15 bytes a run beside parent_run_id: record and head have it. An indexer of an older version
-- waits from here on, as it would write the column. Records compress by a tenth better in larger blocks; what is read of single threads is
-- head, whose blocks stay small.

ALTER TABLE runs /* on cluster */ DROP COLUMN IF EXISTS base;

ALTER TABLE runs /* on cluster */ MODIFY COLUMN IF EXISTS record MODIFY SETTING min_compress_block_size = 524288;
