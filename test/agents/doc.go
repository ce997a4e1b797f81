// Package agents holds the proxy to what it is for: a stock HttpAgent of the official client before agents of real
// frameworks (examples/agents), once at their own URLs and once at Skein's.
package agents
