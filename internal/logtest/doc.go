// Package logtest takes what a part of a process logs, for tests.
package logtest
