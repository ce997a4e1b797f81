// Package front holds what the HTTP stages have in common before their handlers begin and after they return: the server with its limits, deadlines of
// callers that do not read or send, and what the headers of a request take of memory.
package front
