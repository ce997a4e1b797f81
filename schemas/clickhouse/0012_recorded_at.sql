-- When a run was recorded, by Kafka's clock: retention goes by it, as the times of events are by agents' clocks, which may say anything.

ALTER TABLE runs /* on cluster */ ADD COLUMN IF NOT EXISTS
    recorded_at DateTime('UTC') COMMENT 'time of the record in skein.runs; 1970 where the row is older than this column' CODEC(ZSTD(1));
