-- Who produced a run, and its labels: what the run record says of them. Rows from before this file say nothing, as their
-- records do.

ALTER TABLE runs /* on cluster */
    ADD COLUMN IF NOT EXISTS agent  LowCardinality(String),
    ADD COLUMN IF NOT EXISTS labels Map(LowCardinality(String), String);
