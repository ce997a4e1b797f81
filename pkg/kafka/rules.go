package kafka

// Rule allows a stage's user some operations on a resource, where the brokers have an authorizer.
type Rule struct {
	// Stage is ingest, compactor, indexer or query.
	Stage string
	// Resource is "topic", "group" or "transactional id".
	Resource string
	// Name is the resource's name. Of a transactional id it is the beginning: the ids end with the processes' instance ids.
	Name string
	// Operations have Kafka's names, such as "Read".
	Operations []string
	// ClickHouse is true if the stage needs the rule only with ClickHouse as its lineage store.
	ClickHouse bool
}

// Rules returns what the users of the stages need, and nothing else. Operations imply Describe as Kafka defines it.
func (c Config) Rules() []Rule {
	t := c.Topics()
	of := func(stage, resource, name string, operations ...string) Rule {
		return Rule{Stage: stage, Resource: resource, Name: name, Operations: operations}
	}
	refused := of("indexer", "topic", t.DeadLetters, "Write")
	refused.ClickHouse = true
	return []Rule{
		of("ingest", "topic", t.Events, "Read", "Write"),
		of("ingest", "topic", t.Runs, "Describe"),
		of("ingest", "topic", t.Snapshots, "Describe"),
		of("ingest", "topic", t.DeadLetters, "Describe"),
		of("compactor", "topic", t.Events, "Read"),
		of("compactor", "topic", t.Runs, "Read", "Write", "DescribeConfigs"),
		of("compactor", "topic", t.Snapshots, "Write"),
		of("compactor", "topic", t.DeadLetters, "Write"),
		of("compactor", "group", c.CompactorGroup(), "Read"),
		of("compactor", "transactional id", c.CompactorGroup()+"-", "Write"),
		of("indexer", "topic", t.Events, "Describe"),
		of("indexer", "topic", t.Runs, "Read"),
		of("indexer", "topic", t.Snapshots, "Describe"),
		of("indexer", "topic", t.DeadLetters, "Describe"),
		refused,
		of("indexer", "group", c.IndexerGroup(), "Read"),
		of("query", "topic", t.Events, "Read"),
		of("query", "topic", t.Runs, "Read"),
		of("query", "topic", t.Snapshots, "Describe"),
		of("query", "topic", t.DeadLetters, "Read"),
	}
}
