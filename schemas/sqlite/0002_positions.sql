-- How far skein.events is indexed, by partition, for every tenant: what progress records of skein.runs
-- say. The rows of runs say it only as far as records of runs go, which repeats and dead letters do
-- not change; and their erasure takes it back. version is the offset of the last progress record.

CREATE TABLE positions (
    partition INTEGER NOT NULL PRIMARY KEY,
    next      INTEGER NOT NULL,
    version   INTEGER NOT NULL
) STRICT;
