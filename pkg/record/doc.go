// Package record defines what lies on Skein's topics: keys, headers, positions and the run record.
//
// Everything here is a value or a pure function. A record is decoded once where it enters a
// process and encoded once where it leaves it; nothing in this package talks to Kafka.
package record
