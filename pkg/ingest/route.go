package ingest

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/skeinhq/skein/pkg/record"
)

// call is one of the calls that the stage answers.
type call string

const (
	callEvents call = "events"
	callInput  call = "input"
)

var methods = map[call]string{callEvents: http.MethodPost, callInput: http.MethodPut}

// route is a request's call and the ids in its path, unescaped but not checked.
type route struct {
	call        call
	thread, run string
}

// parseRoute reads the path as it was sent. net/http's own mux would answer a path with "." or an
// empty segment with a redirect to another one, which, for ids, is another thread; and an escaped
// slash belongs to its id. ok is false for paths that are none of the stage's.
func parseRoute(u *url.URL) (rt route, ok bool, rej *rejection) {
	path, ok := strings.CutPrefix(u.EscapedPath(), "/v1/")
	if !ok {
		return route{}, false, nil
	}
	segments := strings.Split(path, "/")
	for i, s := range segments {
		plain, err := url.PathUnescape(s)
		if err != nil {
			return route{}, false, badID("the path has a wrong escape: %v", err)
		}
		if plain == "" || plain == "." || plain == ".." {
			return route{}, false, badID("the path has a segment %q: ids are not empty, \".\" or \"..\", and a slash in an id is written %%2F", plain)
		}
		segments[i] = plain
	}
	if len(segments) != 5 || segments[0] != "threads" || segments[2] != "runs" {
		return route{}, false, nil
	}
	rt = route{call: call(segments[4]), thread: segments[1], run: segments[3]}
	_, ok = methods[rt.call]
	return rt, ok, nil
}

func badID(format string, args ...any) *rejection {
	return badLine(reasonID, 0, format, args...)
}

// target is where a request's records go.
type target struct {
	run       string
	key       string
	partition int32
}

// targetOf checks the ids and finds the thread's key and partition.
func targetOf(tenant string, rt route, partitions int32) (target, *rejection) {
	if err := record.ValidateID(rt.thread); err != nil {
		return target{}, badID("thread: %v", err)
	}
	if err := record.ValidateID(rt.run); err != nil {
		return target{}, badID("run: %v", err)
	}
	key, err := record.ThreadKey(tenant, rt.thread)
	if err != nil {
		return target{}, badID("%v", err)
	}
	return target{run: rt.run, key: key, partition: record.Partition([]byte(key), partitions)}, nil
}
