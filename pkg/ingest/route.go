package ingest

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/tenant"
)

// Routes returns the routes of the stage.
func Routes() []front.Route { return new(Service).routes() }

// routes returns the whole API of the stage. A route's action is also its label in metrics.
func (s *Service) routes() []front.Route {
	return []front.Route{
		{Method: http.MethodPost, Pattern: "/v1/threads/{thread}/runs/{run}/events", Scope: tenant.ScopePublish, Action: "events",
			Serve: s.onTarget(named(s.postEvents))},
		{Method: http.MethodPut, Pattern: "/v1/threads/{thread}/runs/{run}/input", Scope: tenant.ScopePublish, Action: "input",
			Serve: s.onTarget(named(s.putInput))},
		{Method: http.MethodPost, Pattern: "/v1/agents/{agent}", Scope: tenant.ScopePublish, Kind: quota.Streams, Action: "agent",
			Serve: s.onTarget(s.postAgent)},
		{Method: http.MethodPost, Pattern: "/v1/threads/{thread}/runs/{run}/cancel", Scope: tenant.ScopePublish, Action: "cancel",
			Serve: s.onTarget(s.postCancel)},
		{Method: http.MethodPost, Pattern: "/v1/threads/{thread}/cancel", Scope: tenant.ScopePublish, Action: "cancel",
			Serve: s.onTarget(s.postCancel)},
		{Method: http.MethodPatch, Pattern: "/v1/threads/{thread}", Scope: tenant.ScopePublish, Action: "patch",
			Serve: s.onTarget(s.patchThread)},
		{Method: http.MethodDelete, Pattern: "/v1/threads/{thread}", Scope: tenant.ScopeErase, Action: "erase",
			Serve: s.onTarget(s.deleteThread)},
	}
}

// Handler returns the HTTP handler of the stage.
func (s *Service) Handler() http.Handler { return s.front }

// target identifies the thread, run and partition that a request's records belong to.
type target struct {
	thread    string
	run       string // "" if the call is about the thread
	tenant    string
	key       string
	partition int32
	// partitions is the partition count of skein.events.
	partitions int32
	// quota counts the tenant's use of its quotas; limits contains the limits, such as those on sizes.
	quota  *quota.Tenant
	limits quota.Limits
}

// onTarget returns a handler that calls serve with the target of the request. If the path contains no thread, serve
// must read the thread from the body.
func (s *Service) onTarget(serve func(*front.Call, target) error) func(*front.Call) error {
	return func(c *front.Call) error {
		n, err := s.pin.partitions()
		if err != nil {
			return err
		}
		t := target{tenant: c.Tenant, partitions: n, quota: c.Quota, limits: c.Quota.Limits()}
		if thread := c.R.PathValue("thread"); thread != "" {
			if t, err = t.of(thread, c.R.PathValue("run")); err != nil {
				return front.Refuse(http.StatusBadRequest, front.ReasonID, "%v", err)
			}
		}
		err = serve(c, t)
		if p := new(front.Problem); errors.As(err, &p) && p.Status == http.StatusUnsupportedMediaType {
			types := typeJSON
			if c.Route.Action == "events" {
				types = acceptedTypes
			}
			c.W.Header().Set("Accept-Encoding", "gzip, zstd")
			c.W.Header().Set("Accept-Post", types)
		}
		return err
	}
}

// of returns the target of a thread and a run. It returns an error for an invalid id.
func (t target) of(thread, run string) (target, error) {
	key, err := record.ThreadKey(t.tenant, thread)
	t.thread, t.run, t.key, t.partition = thread, run, key, record.Partition([]byte(key), t.partitions)
	return t, err
}

// named refuses ids in the path that a new thread or run may not have. What was recorded with such ids can be cancelled, named and erased.
func named(serve func(*front.Call, target) error) func(*front.Call, target) error {
	return func(c *front.Call, t target) error {
		for _, id := range [][2]string{{"thread", t.thread}, {"run", t.run}} {
			if err := record.ValidateNewID(id[1]); err != nil {
				return front.Refuse(http.StatusBadRequest, front.ReasonID, "the %s in the path: %v", id[0], err)
			}
		}
		return serve(c, t)
	}
}

// accept sends a successful response with a JSON body.
func accept(c *front.Call, status int, answer any) error {
	c.Send(status, typeJSON, append(encoded(answer), '\n'))
	return nil
}

// encoded returns a value of this package as JSON.
func encoded(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // impossible: the values contain only texts and numbers
		panic(err)
	}
	return b
}
