// Package admin serves what operators and orchestrators ask of a process: metrics, liveness,
// readiness and profiles. It listens apart from the API, so that none of it is ever reachable
// where tenants are.
package admin
