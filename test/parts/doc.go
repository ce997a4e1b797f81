// Package parts fetches what tests need besides Go: the jars of Apache Kafka and its clients with Maven, and Python
// packages with pip.
//
// Each part is fetched once into a cache outside of any source tree, and must have the checksum that is checked in with
// the test. If a machine cannot provide a part, the error is an *UnavailableError, for which a test is skipped. With
// CI=true such a test fails.
package parts
