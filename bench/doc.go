// Package bench times the stages, each as the process that is shipped, on a real Kafka and ClickHouse, beside what others take for the
// same. The command peers below it measures the compactor.
//
// Costs are CPU seconds of a process, from the operating system's account of it, so that a busy machine disturbs them less than it disturbs
// the clock. Rates depend on the machine: only their ratios in one run say something.
//
// It needs what the tests on a real Kafka need (pkg/kafka/kafkatest). The package holds benchmarks only:
//
//	go test ./bench -run '^$' -bench . -benchtime 1x -v
package bench
