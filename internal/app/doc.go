// Package app has what all Skein processes share: start, configuration, logs, signals, ordered stop and exit codes.
//
// It imports no stage. Each command passes its own constructor, so that a binary contains only its stage; only package app/dev
// imports all stages.
package app
