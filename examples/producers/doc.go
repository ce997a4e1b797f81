// Package producers shows in Go, Python and Java how an agent writes to skein.events without the HTTP door, as
// docs/producing.md tells. Its tests run the programs beside the door and compare what lies on the topic.
package producers
