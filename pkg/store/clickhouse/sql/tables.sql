SELECT name, engine
FROM system.tables
WHERE database = {database:String}
