// Package scan reads recorded runs and their raw events from Kafka and folds the events again with package verify.
// Verify finds records that differ from their raw events. Changes finds records that the current rules would change.
// The package joins no consumer group and writes nothing.
package scan
