// Package refold reads recorded runs and their raw events from Kafka and folds them again with package verify, to find the records that
// differ under the current rules (Refold) or from their raw events (Verify). It joins no group, and writes only requests (Send) to the
// compactor, which alone writes records.
package refold
