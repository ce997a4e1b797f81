// Package refold reads recorded runs and their raw events from Kafka and has package verify fold them again: to say which records would come
// out otherwise (Refold), or differ from their raw events (Verify). It joins no group, and writes nothing but requests (Send) to
// the compactor, which alone writes records.
package refold
