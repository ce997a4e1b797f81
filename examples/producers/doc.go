// Package producers shows in Go, Python and Java how an agent writes to skein.events without the HTTP API, as
// docs/producing.md tells. Its tests run the programs beside ingest and compare what lies on the topic.
package producers
