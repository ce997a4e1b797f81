-- Reads of a thread take a granule of each part, and each column of it is a file of its own in a wide part: opening those is most of what a history
-- costs. With one file for all columns it costs 0.6 of that in processor time (docs/bench/analytics.md#compact-parts). Parts above 256 MiB stay wide, which
-- take a seventh less space. New parts and merges follow the setting; questions over many runs ask runs_by_time, which stays as it is.

ALTER TABLE runs /* on cluster */ MODIFY SETTING min_bytes_for_wide_part = 268435456;

ALTER TABLE messages /* on cluster */ MODIFY SETTING min_bytes_for_wide_part = 268435456;

ALTER TABLE states /* on cluster */ MODIFY SETTING min_bytes_for_wide_part = 268435456;
