-- The trace that a run belongs to; empty where none is known.
ALTER TABLE runs ADD COLUMN trace_id TEXT NOT NULL DEFAULT '';
