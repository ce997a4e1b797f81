// Package containers runs what Skein ships for containers on a real engine: the Dockerfile and the Compose file, by the
// docker command line.
//
// "make test-containers" runs all of it, "make check" a short form where an engine is at hand. Images that cannot be
// pulled are made from what the machine has (folder standins); a line says so.
package containers
