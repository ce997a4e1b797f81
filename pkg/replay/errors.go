package replay

import "errors"

var (
	// ErrTopicSet says that the topic belongs to a topic set, where only stages write.
	ErrTopicSet = errors.New("it belongs to a topic set, where a replay would be taken for what agents send: name a topic of another name")
	// ErrGone says that skein.events holds the first of the events no more.
	ErrGone = errors.New("the first of these events are gone")
	// ErrNoRun says that no record tells of the run.
	ErrNoRun = errors.New("there is no such run")
	// ErrQuery says that what is asked for cannot be.
	ErrQuery = errors.New("no such events")
)
