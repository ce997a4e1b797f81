// Package front is what both HTTP stages begin with. A Front finds a request's row in the stage's table of routes; checks credentials,
// scope, quotas and parameters; calls the route, which returns an error or nil; answers errors as problem documents, and counts. Beside it
// are the budget of memory that tenants share, the audit log, and the server with its limits: deadlines of callers that do not read or
// send, and what a request's headers take.
package front
