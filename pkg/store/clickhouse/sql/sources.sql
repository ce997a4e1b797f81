SELECT DISTINCT topic_id
FROM sources
