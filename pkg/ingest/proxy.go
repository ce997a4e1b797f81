package ingest

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/eventstream"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/ingest/agents"
	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/tenant"
)

const (
	// endGrace is how long a caller may take to read the rest of a run that the proxy ends. A caller that does not read
	// must not delay the run's end.
	endGrace = 2 * time.Second
	// ackGrace is how long the end of a run waits for Kafka on its way to the caller, so that who has seen it finds the run in reads, which
	// have what was acknowledged before they arrive.
	ackGrace = 250 * time.Millisecond
	// afterEnd is how long an agent may keep its stream open after the run's end. The run stays registered until then.
	afterEnd = 5 * time.Second
)

// Codes of the RUN_ERROR events that Skein writes, besides those of package agents.
const (
	codeNotRecorded = "skein-not-recorded"    // Kafka does not accept the run's events
	codeStopping    = "skein-stopping"        // the process stops
	codeRevoked     = "skein-unauthenticated" // the caller's credentials have expired or were revoked
)

// The reasons why the proxy ends a run. An *agents.Error becomes a RUN_ERROR; a stop and errLeft end the run as
// cancelled.
var (
	errLeft     = errors.New("the caller has left")
	errOver     = errors.New("the agent has ended the run")
	errStopping = &agents.Error{Code: codeStopping, Text: "the process ends"}
	errRevoked  = &agents.Error{Code: codeRevoked, Text: tenant.ErrRevoked.Error()}
	errSilent   = &agents.Error{Code: agents.CodeTimeout, Text: "the agent took too long: the agent is silent"}
	errTooLong  = &agents.Error{Code: agents.CodeTimeout, Text: "the agent took too long: the run takes too long"}
	errKafka    = &agents.Error{Code: codeNotRecorded, Text: "Kafka does not take the run's events"}
	errNoRoom   = &agents.Error{Code: codeNotRecorded,
		Text: errKafka.Text + ": the tenant's runs under way use as much memory of this process as they may"}
)

// proxied is a run that this process forwards between a caller and an agent. If the agent begins further runs in the
// same stream, proxied covers all of them. The request's goroutine reads the agent's stream and passes each piece to
// the spool and to the wire. The spool never blocks the wire.
type proxied struct {
	svc    *Service
	agent  *agents.Caller
	keys   []runKey // of all runs of the stream, the current one last; guarded by the lock of Runs
	target target   // of the current run; mu guards target.run, which other goroutines read
	spool  *spool
	wire   *wire
	called bool  // the call of the agent was tried, so the run is on the topic
	turn   *turn // nil if the agent has no policy for threads
	heeds  sync.Once

	ctx    context.Context // of the call to the agent
	cancel context.CancelCauseFunc

	unfinished unfinished
	terminal   bool        // the agent has ended the run
	noEnd      error       // the terminal event is malformed
	closing    *time.Timer // set after the agent has ended the run

	mu    sync.Mutex
	ended bool // the reason for the end no longer changes
}

// postAgent serves POST /v1/agents/{agent}.
func (s *Service) postAgent(c *front.Call, t target) error {
	name := c.R.PathValue("agent")
	agent, ok := s.agents[name]
	if !ok || !agent.Allows(t.tenant) {
		return front.Refuse(http.StatusNotFound, reasonAgent,
			"there is no agent %.200q for this tenant: add it to the file of ingest --agents, or start skein dev with --agent NAME=URL", name)
	}
	by, err := producerOf(c.R.Header)
	if err != nil {
		return err
	}
	rc := http.NewResponseController(c.W)
	held, inputHeld := s.memory.Claim(t.tenant, 0), s.memory.Claim(t.tenant, 0)
	defer held.Close()
	defer inputHeld.Close()
	if err := held.Take(int64(runBase + front.HeadBytes(c.R))); err != nil {
		return err
	}
	b, err := s.openJSON(c, t, "an input")
	if err != nil {
		return err
	}
	input, err := func() ([]byte, error) {
		defer b.close() // even if reading panics
		return readJSON(b, s.maxInput(t), inputHeld.Take)
	}()
	if err != nil {
		return err
	}
	if t, err = ofInput(t, input, held); err != nil {
		return err
	}
	if err := s.admitInput(c, t, input); err != nil {
		return err
	}
	_ = rc.SetReadDeadline(time.Time{})
	c.Audit.Thread, c.Audit.Run = t.thread, t.run
	by.agent, by.labels = agent.Name, addLabels(agent.LabelsOf(input), by.labels)

	p := &proxied{svc: s, agent: agent, target: t}
	p.wire = &wire{w: c.W, rc: rc, left: p.callerLeft, pause: s.cfg.Heartbeat}
	p.spool = s.newSpool(t, by, p.kafkaFailed, func() { s.runs.release(p) })
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	defer p.cancel(nil)
	if err := s.runs.hold(p, t.run); err != nil {
		p.spool.abandon()
		return err
	}
	if agent.OneRun() {
		if p.turn, err = p.takeTurn(c.R); err != nil {
			return p.refuse(err)
		}
		defer p.turn.end()
	}
	if !p.spool.addInput(input) {
		if p.turn != nil {
			p.turn.withdraw()
		}
		return p.refuse(s.memory.Refuse(0, int64(len(input)+recordOverhead)))
	}
	p.called = true
	p.heed()
	p.run(c.R, input, inputHeld)
	return nil
}

// refuse ends a run that does not begin and returns the error for its response. A caller that waited has the head of a stream already, and
// gets the error as the stream's end.
func (p *proxied) refuse(err error) error {
	p.spool.close()
	defer p.wire.stop()
	if errors.Is(err, errLeft) {
		return nil
	}
	if p.wire.beat != nil {
		said := &agents.Error{Code: codeNotRecorded, Text: problemOf(err).Detail}
		if errors.Is(err, tenant.ErrRevoked) {
			said = errRevoked
		}
		p.wire.say(agui.RunErrorOf(said.Text, said.Code), -1)
		p.wire.flush()
	}
	return err
}

// heed starts to read requests to stop the run. Further calls do nothing.
func (p *proxied) heed() {
	p.heeds.Do(func() { go p.svc.heed(p.ctx, p.target) })
}

// release ends the run's claim to its thread. Call it before the run's end is written, so that no renewal comes after it.
func (p *proxied) release() {
	if p.turn != nil {
		p.turn.end()
	}
}

// run calls the agent and forwards its stream until the run ends.
func (p *proxied) run(r *http.Request, input []byte, held *front.Claim) {
	defer p.spool.close()
	defer p.keepOpen()
	p.wire.begin()
	defer p.wire.stop()
	// The end of the caller's credentials ends the run, whatever OnDisconnect is, and even after a disconnect.
	defer tenant.OnRevoked(r.Context(), func() { p.end(errRevoked) })()
	defer context.AfterFunc(r.Context(), func() {
		if !tenant.Revoked(r.Context()) {
			p.callerLeft()
		}
	})()
	tooLong := time.AfterFunc(p.agent.RunTimeout, func() { p.end(errTooLong) })
	defer tooLong.Stop()

	body, err := p.agent.Call(p.ctx, input, held.Close, p.target.tenant, r.Header)
	if err == nil {
		err = p.copy(body)
		_ = body.Close() // the stream has ended, so the error does not matter
	}
	p.finish(err)
	p.wire.flush()
}

// copy forwards the agent's stream piece by piece and publishes its events. It returns the error that ended the stream,
// or nil for a complete stream that ended the run.
func (p *proxied) copy(body io.Reader) error {
	reader := eventstream.NewSSE(p.patient(body), p.svc.cfg.MaxEventBytes,
		eventstream.Memory{Acquire: p.spool.acquire, Release: p.spool.release})
	defer reader.Close()
	for {
		piece, err := reader.Next()
		if err == nil {
			p.pay(piece)
			p.take(piece)
			continue
		}
		rest := reader.Rest()
		_, bad := agui.Envelope(rest.Data)
		if bad == nil {
			rest.Partial = true // only the empty line after it is missing
			p.take(rest)
		} else if len(rest.Raw) > 0 && (p.terminal || rest.Partial) { // else drop the incomplete event, so that the proxy can write the run's end
			p.wire.event(rest.Raw, -1, true)
		}
		switch {
		case p.terminal:
			return nil
		case bad != nil && agui.TypeOf(rest.Data).Terminal():
			return &agents.Error{Code: agents.CodeNoEnd, Text: fold.NoEndText(bad)}
		case errors.Is(err, io.EOF):
			return &agents.Error{Code: agents.CodeNoEnd, Text: "the agent's stream ended without RUN_FINISHED or RUN_ERROR"}
		}
		return &agents.Error{Code: agents.CodeCut, Text: "the agent's stream broke off", Err: err}
	}
}

// pay waits until the tenant's quotas allow a piece's event. Meanwhile, the proxy does not read the agent's stream.
func (p *proxied) pay(piece eventstream.Piece) {
	q := p.target.quota
	if piece.Data == nil && !piece.Over || !q.Limited(quota.Events) && !q.Limited(quota.Bytes) {
		return
	}
	p.wire.flush()
	err := q.Wait(p.ctx, quota.Events, 1, p.agent.RunTimeout)
	if err == nil {
		err = q.Wait(p.ctx, quota.Bytes, int64(len(piece.Data)), p.agent.RunTimeout)
	}
	if over := new(quota.ExceededError); errors.As(err, &over) {
		p.end(errTooLong)
	}
}

// take passes a piece's event to the spool, which does not block, and then forwards its bytes. In this order, the spool
// has every event that the caller sees.
func (p *proxied) take(piece eventstream.Piece) {
	seq, ends := int64(-1), false
	switch {
	case piece.Over:
		t := agui.TypeOf(piece.Head)
		if p.terminal && t == agui.RunStarted {
			p.next(nil) // its id is unknown, so the events stay with the previous run
		}
		seq = p.spool.skip(piece.Err != nil)
		p.unfinished.begun = true
		if ends = t.Terminal(); ends && !p.terminal {
			p.terminal = true
			p.sayLost()
		}
	case piece.Data != nil:
		t := agui.TypeOf(piece.Data)
		if p.terminal && t == "" { // such as [DONE]; the run's record no longer changes
			p.svc.metrics.leftOut.WithLabelValues(leftOutMalformed).Inc()
			break
		}
		if p.terminal && t == agui.RunStarted {
			p.next(piece.Data)
		}
		if t.Terminal() {
			p.release()
		}
		seq = p.spool.addEvent(piece.Data, false, t.Terminal()) // a malformed one, too: its run's record says why
		if t != "" {
			p.unfinished.see(t, piece.Data)
		}
		if ends = t.Terminal(); ends && !p.terminal {
			p.terminal = true
			if _, bad := agui.Decode(piece.Data); bad != nil {
				p.noEnd = &agents.Error{Code: agents.CodeNoEnd, Text: fold.NoEndText(bad)}
			}
		}
	}
	if ends {
		p.settle()
	}
	p.wire.event(piece.Raw, seq, piece.Partial)
	if p.terminal {
		p.closeSoon()
	} else {
		p.keepOpen()
	}
}

// closeSoon starts the timer that closes the agent's stream afterEnd after the end of its run.
func (p *proxied) closeSoon() {
	if p.closing == nil {
		p.closing = time.AfterFunc(p.svc.afterEnd, func() { p.end(errOver) })
	}
}

// keepOpen stops the timer of closeSoon.
func (p *proxied) keepOpen() {
	if p.closing != nil {
		p.closing.Stop()
		p.closing = nil
	}
}

// next begins another run of the stream. The argument started is its RUN_STARTED; nil if unknown. If it has no usable
// run id, the events stay with the previous run and continue its numbers; the compactor separates the two.
func (p *proxied) next(started []byte) {
	p.endedByAgent()
	p.terminal, p.noEnd, p.unfinished = false, nil, unfinished{}
	ev, err := agui.Decode(started)
	if err != nil {
		return
	}
	run, _ := ev.String(agui.FieldRunID)
	if record.ValidateNewID(run) != nil || p.svc.runs.hold(p, run) != nil {
		return
	}
	p.mu.Lock()
	p.target.run = run
	p.mu.Unlock()
	p.spool.beginRun(run)
}

// patient returns a reader of the agent's stream that flushes the wire before each read. A read that takes longer than
// SilenceTimeout ends the run.
func (p *proxied) patient(body io.Reader) io.Reader {
	silence := p.agent.SilenceTimeout
	timer := time.AfterFunc(silence, func() { p.end(errSilent) })
	timer.Stop()
	return readerFunc(func(b []byte) (int, error) {
		p.wire.flush()
		// The timer runs only while the proxy waits for the agent, not while it waits for the caller.
		timer.Reset(silence)
		defer timer.Stop()
		return body.Read(b)
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// end closes the agent's connection and sets the reason for the run's end. It returns false if the run has already
// ended or a reason is already set.
func (p *proxied) end(reason error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return false
	}
	p.ended = true
	p.cancel(reason)
	p.wire.endSoon(endGrace)
	return true
}

// reason returns why the proxy has ended the run, or nil if it has not. Later calls of end have no effect.
func (p *proxied) reason() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.ended = true
		return nil
	}
	return context.Cause(p.ctx)
}

func (p *proxied) callerLeft() {
	if p.agent.OnDisconnect == agents.Cancel {
		p.end(errLeft)
	}
}

// kafkaFailed handles a failure of the spool.
func (p *proxied) kafkaFailed(err error) {
	p.mu.Lock()
	run := p.target.run
	p.mu.Unlock()
	p.svc.logger.Warn("events of a run wait for Kafka", "agent", p.agent.Name, "thread_id", p.target.thread, "run_id", run, "error", err)
	if p.agent.OnKafkaFailure != agents.Cut {
		return
	}
	if !errors.Is(err, errNoRoom) {
		err = errKafka // the brokers' error is not for the caller
	}
	p.end(err)
}

// finish writes the end of a run if its agent has not ended it.
func (p *proxied) finish(err error) {
	reason := p.reason()
	if p.terminal {
		p.endedByAgent()
		return
	}
	p.endInPlace(reason, err)
}

// endInPlace writes the end of a run that its agent has not ended, for a reason of the proxy or an error of the agent.
func (p *proxied) endInPlace(reason, err error) {
	asked, _ := errors.AsType[*stop](reason)
	outcome, event := runCancelled, cancelledEvent(p.target, asked)
	if failed := new(agents.Error); errors.As(cmp.Or(reason, err), &failed) {
		outcome, event = failed.Code, agui.RunErrorOf(failed.Text, failed.Code)
	}
	p.svc.metrics.runs.WithLabelValues(outcome).Inc()
	p.svc.logger.Warn("a run was ended in its agent's place", "agent", p.agent.Name, "thread_id", p.target.thread, "run_id", p.target.run,
		"code", outcome, "error", errors.Join(reason, err, errors.Unwrap(err)))
	p.wire.closeEvent()
	if outcome == runCancelled { // the client rejects RUN_FINISHED while an event listed in pairs is open
		if !p.unfinished.begun {
			p.say(startedEvent(p.target))
		}
		for _, end := range p.unfinished.ends() {
			p.say(end)
		}
	}
	p.say(event)
}

// settle waits up to ackGrace until the events so far are acknowledged, after the caller has all but the run's end.
func (p *proxied) settle() {
	p.wire.flush()
	p.spool.settle(ackGrace)
}

// say publishes a synthetic event and sends it to the caller.
func (p *proxied) say(event []byte) {
	ends := agui.TypeOf(event).Terminal()
	if ends {
		p.release()
	}
	seq := p.spool.addEvent(event, true, true)
	if ends {
		p.settle()
	}
	p.wire.say(event, seq)
}

// endedByAgent counts a run that its agent has ended. If the terminal event did not fit into memory, endedByAgent publishes a RUN_ERROR in
// its place; if it was malformed, also to the caller.
func (p *proxied) endedByAgent() {
	if p.noEnd != nil {
		p.endInPlace(nil, p.noEnd)
		return
	}
	p.svc.metrics.runs.WithLabelValues(runEnded).Inc()
	if p.spool.unsaid() > 0 {
		p.sayLost()
	}
}

// sayLost publishes a RUN_ERROR in place of events that were left out.
func (p *proxied) sayLost() {
	p.release()
	p.spool.addEvent(agui.RunErrorOf("the last events of the run were not recorded, its end with them", codeNotRecorded), true, true)
}

// synthetic is an event that the proxy writes in place of the agent.
type synthetic struct {
	Type     agui.Type   `json:"type"`
	ThreadID agui.String `json:"threadId,omitempty"`
	RunID    agui.String `json:"runId,omitempty"`
	Outcome  any         `json:"outcome,omitempty"`
	Metadata any         `json:"metadata,omitempty"`
	Version  string      `json:"protocolVersion,omitempty"`
}

func startedEvent(t target) []byte {
	return encoded(synthetic{Type: agui.RunStarted, ThreadID: agui.String(t.thread), RunID: agui.String(t.run), Version: agui.ProtocolVersion})
}

// stop is a request to stop a run, with the caller's reason.
type stop struct {
	Reason string `json:"reason,omitempty"`
}

func (*stop) Error() string { return "the run was stopped on request" }

// cancelledEvent returns the end of a run that was stopped, or whose caller has left: asked is nil.
func cancelledEvent(t target, asked *stop) []byte {
	e := synthetic{Type: agui.RunFinished, ThreadID: agui.String(t.thread), RunID: agui.String(t.run),
		Outcome: map[string]string{"type": "cancelled"}}
	if asked != nil {
		e.Metadata = map[string]*stop{record.MetadataStop: asked}
	}
	return encoded(e)
}

// ofInput returns the target for the thread and run that an input names.
func ofInput(t target, input []byte, h *front.Claim) (target, error) {
	in, err := decodeInput(input, h)
	if err != nil {
		return target{}, err
	}
	for _, id := range [][2]string{{"thread", in.ThreadID}, {"run", in.RunID}} {
		if err := record.ValidateNewID(id[1]); err != nil {
			return target{}, front.Refuse(http.StatusBadRequest, front.ReasonID, "the input's %s: %v", id[0], err)
		}
	}
	return t.of(in.ThreadID, in.RunID)
}

// addLabels adds the caller's labels to those of the configuration. For the same key, the configuration wins.
func addLabels(labels, more []record.Label) []record.Label {
	for _, l := range more {
		known := slices.ContainsFunc(labels, func(o record.Label) bool { return o.Key == l.Key })
		if !known && len(labels) < record.MaxLabels {
			labels = append(labels, l)
		}
	}
	return labels
}
