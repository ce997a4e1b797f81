// Package agents configures and calls the agents that the proxy may call, and classifies their failures. Agents come
// from the configuration only: no request can name a URL, and redirects are not followed.
package agents
