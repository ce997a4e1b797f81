// Package e2e runs Skein as it runs in production, every stage a process of the built binary, and
// holds what comes out of the HTTP API to the official client's results. There is no code here that
// anything else uses; the tests are all of it.
package e2e
