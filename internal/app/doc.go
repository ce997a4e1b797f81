// Package app is what every Skein process has in common: how it starts, reads its configuration,
// logs, reacts to signals, stops its parts in order and tells its exit code.
//
// It knows no stage. Each command hands its own constructor over, so that a binary holds only
// what it runs; package app/dev is the one place that puts all stages together.
package app
