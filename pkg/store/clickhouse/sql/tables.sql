SELECT name, engine, toString(uuid)
FROM system.tables
WHERE database = {database:String}
