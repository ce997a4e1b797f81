-- When a tool call began (called_at, Unix milliseconds) and how many milliseconds it took to its result in the same run; NULL where the run record does
-- not say it, as those from before this file.

ALTER TABLE tool_calls ADD COLUMN called_at   INTEGER;
ALTER TABLE tool_calls ADD COLUMN duration_ms INTEGER;
