// Package apache runs a real Apache Kafka on loopback for tests, without Docker. It starts KRaft brokers as Java
// processes, from jars that Maven fetches.
//
// The jars are fetched once into a cache outside the source tree. Every jar must have the checksum in jars-VERSION.sha256. When
// the process that started the Java processes ends, in whatever way, they end as well and their data is deleted.
package apache
