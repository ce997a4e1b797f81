-- Searches for words skip the granules that lack a word's sequences of four characters. The expression is that of the search, in lower case.
-- Inserts leave the index to merges, which make it in the background; messages that are there already get it now, in the background too.

ALTER TABLE messages /* on cluster */
    ADD INDEX IF NOT EXISTS words lowerUTF8(if(JSONType(raw, 'content') = 'String', JSONExtractString(raw, 'content'),
        arrayStringConcat(arrayMap(p -> if(JSONExtractString(p, 'type') = 'text', JSONExtractString(p, 'text'), ''), JSONExtractArrayRaw(raw, 'content')), '\n')))
        TYPE ngrambf_v1(4, 8192, 2, 0) GRANULARITY 1;

ALTER TABLE messages /* on cluster */ MATERIALIZE INDEX IF EXISTS words;
