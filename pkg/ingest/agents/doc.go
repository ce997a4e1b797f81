// Package agents has the agents that the proxy may call: their configuration, the call itself, and what can
// go wrong with it. Agents come from the configuration only. No request can name a URL, and redirects of agents
// are not followed.
package agents
