// Package abuse holds four promises while one tenant attacks a stage and another one works: the stage stays within the chart's memory
// limit; the other tenant's calls take at most one second longer (p99); a refusal names the limit and when to try again; a revoked key ends
// open requests.
//
// Each stage runs as a process of its own. Each attack logs one row: peak memory, the other tenant's delay, and what the attacker got.
//
//	make abuse                                  the long form: full force, on a real Kafka
//	go test -v ./test/abuse -run Ingest         the short form, as in make check
package abuse
