// Package apache runs a real Apache Kafka on loopback for tests, without Docker: KRaft brokers in Java
// processes, from the jars that Maven has.
//
// The jars are fetched once into a cache outside of any source tree, and every one of them must have
// the checksum that is checked in beside this file. The processes end with the one that started them,
// however that ends, and take their data with them.
package apache
