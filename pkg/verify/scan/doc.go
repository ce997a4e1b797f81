// Package scan reads recorded runs and their raw events from Kafka and folds them again with package verify: Verify finds records that
// differ from their raw events, Changes those that differ under the rules of this version. It joins no group and writes nothing.
package scan
