// Package search has the filters of runs for GET /v1/runs, GET /v1/statistics, skein runs and skein stats (docs/search.md): it
// parses parameters, and defines the results that stores return.
package search
