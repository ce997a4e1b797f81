// Package clickhousetest gives tests a real ClickHouse. Start takes the first that can be had:
//
//  1. the server that SKEIN_TEST_CLICKHOUSE names: a URL such as http://user:password@host:8123 or
//     clickhouse://user:password@host:9000, whose user may create databases;
//  2. a container, where a Docker daemon answers;
//  3. on linux/amd64, the real engine as a shared library from the npm package @chdb/lib-linux-x64-gnu,
//     behind its HTTP interface (package chdb). It is downloaded once into the user's cache folder
//     (SKEIN_CACHE names another), and checked against a pinned hash.
//
// Where none can be had the test is skipped, with the reason and what to install. With CI=true that is
// a failure: a green build must not hide that nothing was tested.
//
// The server is shared by the tests of a package; each test has a database of its own.
//
// The engine runs in a child process, so that a fault in it is not one of the test: the test binary
// starts itself again, and this package's init function becomes the server when it finds its variable
// in the environment. The child ends when the test process does, however that ends.
package clickhousetest
