package replay

import "errors"

var (
	// ErrTopicSet is returned for a topic of a topic set, where only stages write.
	ErrTopicSet = errors.New("it belongs to a topic set, where a replay would be taken for what agents send: name a topic of another name")
	// ErrGone is returned if skein.events no longer has the first of the events.
	ErrGone = errors.New("the first of these events are gone")
	// ErrNoRun is returned if no record names the run.
	ErrNoRun = errors.New("there is no such run")
	// ErrQuery is returned for a query that nothing can match.
	ErrQuery = errors.New("no such events")
)
