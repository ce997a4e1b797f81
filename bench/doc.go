// Package bench times the compactor, as the process that is shipped, against what franz-go costs on
// the same topic of the same real Kafka in the same run:
//
//   - consumer: a bare client that reads the topic and does nothing;
//   - echo: a bare transactional client that reads the topic and writes each record to another one.
//
// Costs are CPU seconds of a process for a million events, from the operating system's account of it,
// so that a busy machine disturbs them less than it disturbs the clock. Rates depend on the machine:
// only their ratios in one run say something.
//
// It needs what the tests on a real Kafka need (pkg/kafka/kafkatest). The package holds benchmarks only:
//
//	go test ./bench -run '^$' -bench . -benchtime 1x -v
package bench
