// Package front is the common entry of both HTTP stages. A Front finds a request's route, checks credentials, scope,
// quotas and parameters, calls the route, answers errors as problem documents, and counts. The package also has the
// memory budget that tenants share, the audit log, and the HTTP server. The server limits the size of request headers
// and sets deadlines for callers that do not read or send.
package front
