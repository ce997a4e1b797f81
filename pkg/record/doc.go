// Package record defines the records on Skein's topics: keys, headers, positions and the run record.
//
// Everything here is a value or a pure function. A record is decoded once when it enters a process and encoded once
// when it leaves it; nothing in this package talks to Kafka.
package record
