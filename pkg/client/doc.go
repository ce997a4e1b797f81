// Package client calls Skein's HTTP API, of ingest and of the query stage.
//
// A Client publishes the events of an agent's runs, restores and follows threads, branches from any run, and stops runs:
//
//	c, err := client.New("http://127.0.0.1:8420", client.WithAPIKey(key))
//	sent, err := c.Publish(ctx, thread, run, input, client.Events(answer)) // an agent's answer, as it comes
//	history, err := c.History(ctx, thread, "")                             // messages and state of the thread's tip
//	for event, err := range c.Stream(ctx, thread, run) { … }               // a run from its start, then live
//	next, err := c.Checkout(ctx, thread, run, "")                          // an input for the agent: a branch
//	ended, err := c.CancelRun(ctx, thread, run, "the user pressed stop")
//	asked, err := c.StopRequested(ctx, thread, run)                        // in the agent, which then ends the run
//
// Messages, states and events are JSON, unchanged: numbers, the order of keys and escapes are kept.
//
// # Errors
//
// Calls end with their context. A refusal of the server is an *Error: its Detail says what to do, its Reason which rule it is. IsNotFound
// recognises threads and runs that do not exist, and ErrUnreachable a server that does not answer.
//
// What can be repeated is repeated: after a 425, 429, 502, 503 or 504, when the server says so (Retry-After) or after a pause that grows,
// and if a server that has answered before does not, for as long as WithPatience says. Get, Copy, PutInput, PostEvents, CancelRun and
// LastRun are one call each, and are not repeated.
package client
