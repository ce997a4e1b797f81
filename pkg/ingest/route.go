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

// Routes returns the calls that the stage answers.
func Routes() []front.Route { return new(Service).routes() }

// routes is the whole API of the stage. The action of a call is also its label in metrics.
func (s *Service) routes() []front.Route {
	return []front.Route{
		{Method: http.MethodPost, Pattern: "/v1/threads/{thread}/runs/{run}/events", Scope: tenant.ScopePublish, Action: "events",
			Serve: s.onTarget(s.postEvents)},
		{Method: http.MethodPut, Pattern: "/v1/threads/{thread}/runs/{run}/input", Scope: tenant.ScopePublish, Action: "input",
			Serve: s.onTarget(s.putInput)},
		{Method: http.MethodPost, Pattern: "/v1/agents/{agent}", Scope: tenant.ScopePublish, Kind: quota.Streams, Action: "agent",
			Serve: s.onTarget(s.postAgent)},
		{Method: http.MethodPost, Pattern: "/v1/threads/{thread}/runs/{run}/cancel", Scope: tenant.ScopePublish, Action: "cancel",
			Serve: s.onTarget(s.postCancel)},
		{Method: http.MethodDelete, Pattern: "/v1/threads/{thread}", Scope: tenant.ScopeErase, Action: "erase",
			Serve: s.onTarget(s.deleteThread)},
	}
}

// Handler answers the stage's calls.
func (s *Service) Handler() http.Handler { return s.front }

// target is where a request's records go.
type target struct {
	thread    string
	run       string // "" where the call is about the thread
	tenant    string
	key       string
	partition int32
	// partitions are as many as skein.events has.
	partitions int32
	// quota is what the tenant may take, and limits what it may be large.
	quota  *quota.Tenant
	limits quota.Limits
}

// onTarget calls serve with where the records of a call go. If the call's path names no thread, its body does.
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

// of returns the target of a thread and a run with valid ids.
func (t target) of(thread, run string) (target, error) {
	key, err := record.ThreadKey(t.tenant, thread)
	t.thread, t.run, t.key, t.partition = thread, run, key, record.Partition([]byte(key), t.partitions)
	return t, err
}

// revoked returns the refusal of a request whose credentials have ended; nil while they are valid.
func revoked(r *http.Request) error {
	if tenant.Revoked(r.Context()) {
		return tenant.ErrRevoked
	}
	return nil
}

// accept answers a call that has done what was asked.
func accept(c *front.Call, status int, answer any) error {
	body, err := json.Marshal(answer)
	if err != nil { // numbers and ids only: cannot be
		return err
	}
	c.Send(status, typeJSON, append(body, '\n'))
	return nil
}
