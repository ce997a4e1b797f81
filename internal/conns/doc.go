// Package conns guards the connections of an HTTP/1.1 server, before and behind what its handlers do. It refuses requests that two servers may
// understand differently, bounds what is held before anybody knows whose it is (connections without a request, long heads, answers that need no
// credentials), and ends connections whose callers do not take the rest of an answer or do not end a body.
package conns
