-- When a run was recorded, by Kafka's clock, in Unix milliseconds: retention goes by it, as the times of events are by agents' clocks, which may say
-- anything. 0 where the row is older than this column.

ALTER TABLE runs ADD COLUMN recorded_at INTEGER NOT NULL DEFAULT 0;
