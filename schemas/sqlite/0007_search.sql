-- The runs of a tenant in the order of their start, for searches.

CREATE INDEX runs_by_time ON runs (tenant, started_at, thread_id, run_id) WHERE deleted = 0;
