// Package apache runs a real Apache Kafka on loopback for tests, without Docker: KRaft brokers in Java processes, from
// jars that Maven fetches.
//
// The jars are fetched once into a cache outside of any source tree. Every jar must have the checksum that is checked
// in beside this file. When the process that started them ends, in whatever way, the Java processes end as well and
// their data is deleted.
package apache
