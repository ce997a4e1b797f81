// Package abuse attacks each stage as one tenant with one key, and measures what another tenant notices.
//
// Every attack starts the stage as a process of its own, with the memory limit of the Helm chart as GOMEMLIMIT, and holds
// its peak of resident memory to that limit. It ends with one row of a table: attack, bytes sent, peak memory, the other
// tenant's delay, and the answer that the attacker got.
//
//	make abuse                                  all attacks, in their long form
//	go test -v ./test/abuse -run Ingest         the short form of some, as in CI
package abuse
