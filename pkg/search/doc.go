// Package search is the filter language of runs: what GET /v1/runs, GET /v1/statistics, skein runs and skein stats take
// (docs/search.md). It parses parameters into a Filter, and says what a store answers with. It reads nothing itself.
package search
