// Package agents configures and calls the agents of the proxy, and classifies their failures. Only the configuration
// decides which URLs are called: requests cannot contain a URL, and redirects are not followed.
package agents
