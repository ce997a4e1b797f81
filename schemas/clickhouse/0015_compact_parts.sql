-- Reads of a thread take a granule of each part, and each column of it is a file of its own in a wide part: opening those is most of what a history
-- costs. With one file for all columns it costs 0.6 of that in processor time (docs/bench/analytics.md#compact-parts). Parts above 64 MiB, uncompressed, stay
-- wide: they take a seventh less space, questions over many runs read single columns of them, and a deletion writes a mask beside them, where it
-- writes a compact part anew. New parts and merges follow the setting.

ALTER TABLE runs /* on cluster */ MODIFY SETTING min_bytes_for_wide_part = 67108864;

ALTER TABLE messages /* on cluster */ MODIFY SETTING min_bytes_for_wide_part = 67108864;

ALTER TABLE states /* on cluster */ MODIFY SETTING min_bytes_for_wide_part = 67108864;
