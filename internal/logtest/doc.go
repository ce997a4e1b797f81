// Package logtest collects log output in tests.
package logtest
