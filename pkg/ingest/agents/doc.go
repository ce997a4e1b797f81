// Package agents knows the agents that the proxy may call: their configuration, the call itself, and what can
// go wrong with it. Agents come from configuration only. No request can name a URL, and where an agent redirects
// to, nobody goes.
package agents
