// Package admin serves metrics, liveness, readiness and profiles of a process. It has its own listener, so that tenants, who
// reach the API, cannot reach these.
package admin
