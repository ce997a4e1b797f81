-- The title of a thread (name 'title'), and that it is archived (name 'archived', value 'true'), each as one record of skein.runs says. version is that
-- record's offset.
CREATE TABLE thread_details (
    tenant    TEXT    NOT NULL,
    thread_id TEXT    NOT NULL,
    name      TEXT    NOT NULL,
    version   INTEGER NOT NULL,
    deleted   INTEGER NOT NULL, -- 1: a tombstone; it stays, so that an older record cannot come back
    value     TEXT    NOT NULL,
    folded    TEXT    NOT NULL, -- the title as searches compare it
    PRIMARY KEY (tenant, thread_id, name)
) STRICT, WITHOUT ROWID;
