// Package parts fetches what tests run beside Go: the jars of Apache Kafka and its clients by Maven, Python packages by pip.
//
// Everything is fetched once into a cache outside of any source tree, and has to have the checksum that is checked in
// beside the test. A part that a machine cannot have is an *UnavailableError, for which a test is skipped, but for CI=true.
package parts
