-- Who produced a run. Its labels are in record. Rows from before this file name nobody, as their records do.

ALTER TABLE runs ADD COLUMN agent TEXT NOT NULL DEFAULT '';
