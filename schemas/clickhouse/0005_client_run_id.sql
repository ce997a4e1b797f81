-- The run record calls it clientRunId: the id as the agent gave it, where the run has another one.
ALTER TABLE runs /* on cluster */ RENAME COLUMN IF EXISTS given_run_id TO client_run_id;
