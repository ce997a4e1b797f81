package record

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Version is the version of everything that this package writes. Readers refuse newer versions.
const Version = 1

// ErrUnknownVersion is returned for a record of a newer Skein. Its contents are never guessed: the process must stop
// there until it is upgraded. The error text has both versions.
var ErrUnknownVersion = errors.New("unknown record version")

// ErrInvalidHeader is returned for a header whose value its name does not allow.
var ErrInvalidHeader = errors.New("invalid header")

// ErrUnknownKind is returned for a record whose HeaderKind is unknown.
var ErrUnknownKind = errors.New("unknown record kind")

// The names of the headers that records carry.
const (
	HeaderVersion = "skein-version"
	HeaderKind    = "skein-kind"
	HeaderRunID   = "run-id"
	HeaderSeq     = "seq"

	// HeaderWriter is on every record of a version above 1 that Skein writes. A newer version without it is the mistake of a producer
	// that is not Skein, and must not stop the partition.
	HeaderWriter = "skein-writer"
	writer       = "skein"

	// HeaderAgent names the producer of the run.
	HeaderAgent = "agent"

	// HeaderLabelPrefix followed by a label's key is the name of the label's header.
	HeaderLabelPrefix = "label-"

	// MetadataStop is the member of a RUN_FINISHED's metadata that says that Skein's proxy stopped the run on request. Its reason is the
	// caller's.
	MetadataStop = "skein.stopped"

	// HeaderSynthetic is "true" on an event that Skein's proxy wrote in the agent's place.
	HeaderSynthetic = "skein-synthetic"

	// HeaderIncomplete is the number, from 1, of records of the run that Skein's proxy left out before this one; they are
	// on no topic.
	HeaderIncomplete = "skein-incomplete"

	// HeaderReason, HeaderPosition and HeaderDetail are on dead letters, in addition to the record's own headers: a rule's
	// name, the Position from which the record was read, a text for people.
	HeaderReason   = "skein-reason"
	HeaderPosition = "skein-position"
	HeaderDetail   = "skein-detail"

	// HeaderRetryOf is on an event that was published again from a dead letter: that letter's Position in
	// skein.dead-letters.
	HeaderRetryOf = "skein-retry-of"

	// HeaderCopiedFrom is on an event that was copied from another topic set: its Position there. A HeaderRetryOf beside
	// it names a dead letter of that set.
	HeaderCopiedFrom = "skein-copied-from"
)

// Limits of the agent and the labels in a record's headers. Readers ignore what exceeds them.
const (
	MaxAgentBytes = 512
	MaxLabels     = 16
	MaxLabelBytes = 256 // of a label's key, and of its value
)

// Label is one label of a run that the platform sets, such as its user or environment.
type Label struct{ Key, Value string }

// SaidByProducer reports whether a header of that name describes an event, its run or its producer, and not how Skein
// got the event. The list never changes: HeaderMAC is made of these headers, so with another list the signatures on the topic are wrong.
func SaidByProducer(name string) bool {
	switch name {
	case HeaderVersion, HeaderKind, HeaderRunID, HeaderSeq, HeaderAgent, HeaderTraceparent, HeaderSynthetic, HeaderIncomplete:
		return true
	}
	return strings.HasPrefix(name, HeaderLabelPrefix)
}

// ValidAgent reports whether s can name an agent: 1 to MaxAgentBytes bytes of UTF-8.
func ValidAgent(s string) bool { return s != "" && len(s) <= MaxAgentBytes && utf8.ValidString(s) }

// Valid reports whether the label is allowed: key and value are UTF-8 of up to MaxLabelBytes bytes, the key not empty.
func (l Label) Valid() bool {
	return l.Key != "" && len(l.Key) <= MaxLabelBytes && len(l.Value) <= MaxLabelBytes && utf8.ValidString(l.Key) && utf8.ValidString(l.Value)
}

// Kind is the kind of a record's value.
type Kind string

// The kinds: event, input, erase, cancel, claim and thread on skein.events, run, fence, progress, erase and thread on
// skein.runs, snapshot and oversize (in the place of a snapshot that is too large) on skein.snapshots.
const (
	KindEvent Kind = "event"
	KindInput Kind = "input"
	KindErase Kind = "erase"
	// KindCancel asks the holder of a run to stop it: Skein's proxy, or the agent itself. Everyone else ignores it; the
	// end that may follow is an ordinary event.
	KindCancel Kind = "cancel"
	// KindClaim is a claim of a proxied run to be the only one of its thread. Proxies read it; everyone else ignores it.
	KindClaim Kind = "claim"
	// KindThread is a patch of a thread's details on skein.events (DecodePatch), and one detail on skein.runs (DecodeDetail).
	KindThread   Kind = "thread"
	KindRun      Kind = "run"
	KindFence    Kind = "fence"
	KindProgress Kind = "progress"
	KindSnapshot Kind = "snapshot"
	KindOversize Kind = "oversize"
)

// kinds maps names to kinds, so that reading a known name allocates nothing.
var kinds = func() map[string]Kind {
	m := map[string]Kind{}
	for _, k := range []Kind{
		KindEvent, KindInput, KindErase, KindCancel, KindClaim, KindThread, KindRun, KindFence, KindProgress, KindSnapshot, KindOversize,
	} {
		m[string(k)] = k
	}
	return m
}()

// Header is one header of a Kafka record.
type Header struct {
	Key   string
	Value []byte
}

// AnyHeader is Header, or a Kafka client's type with the same fields.
type AnyHeader interface {
	~struct {
		Key   string
		Value []byte
	}
}

// Headers are a record's headers.
type Headers struct {
	// Version is the writer's record version; 0 is written as Version.
	Version int
	Kind    Kind
	// RunID is the run of an event or input, as the producer named it; empty if it did not.
	RunID string
	// Seq is the producer's number of the event in its run, from 0; -1 is none. Numbers must rise in the order of the log:
	// an event whose number is not above all earlier ones of its run is dropped, even if it is new.
	Seq int64
	// Agent names the producer of the run (ValidAgent); empty if the record does not.
	Agent string
	// Labels are the labels of the run on this record: up to MaxLabels that are Valid, each key once, in the record's
	// order. Do not change them: headers that ParseHeadersLike has read share them.
	Labels []Label
	// Traceparent is the trace context of the record's producer (Traceparent); empty if the record has none.
	Traceparent string
	// Synthetic: Skein's proxy wrote this event in the agent's place.
	Synthetic bool
	// Incomplete is how many records of the run Skein's proxy left out before this one; 0 is none.
	Incomplete int64
}

// Equal reports whether both are the same.
func (h Headers) Equal(o Headers) bool {
	return h.Version == o.Version && h.Kind == o.Kind && h.RunID == o.RunID && h.Seq == o.Seq &&
		h.Agent == o.Agent && slices.Equal(h.Labels, o.Labels) &&
		h.Traceparent == o.Traceparent && h.Synthetic == o.Synthetic && h.Incomplete == o.Incomplete
}

// Encode returns the headers in a fixed order, without empty ones.
func (h Headers) Encode() []Header {
	if h.Version == 0 {
		h.Version = Version
	}
	out := make([]Header, 0, 7+len(h.Labels))
	out = append(out, Header{HeaderVersion, strconv.AppendInt(nil, int64(h.Version), 10)})
	if h.Version > 1 {
		out = append(out, Header{HeaderWriter, []byte(writer)})
	}
	if h.Kind != "" {
		out = append(out, Header{HeaderKind, []byte(h.Kind)})
	}
	if h.RunID != "" {
		out = append(out, Header{HeaderRunID, []byte(h.RunID)})
	}
	if h.Seq >= 0 {
		out = append(out, Header{HeaderSeq, strconv.AppendInt(nil, h.Seq, 10)})
	}
	if h.Agent != "" {
		out = append(out, Header{HeaderAgent, []byte(h.Agent)})
	}
	for _, l := range h.Labels {
		out = append(out, Header{HeaderLabelPrefix + l.Key, []byte(l.Value)})
	}
	if h.Traceparent != "" {
		out = append(out, Header{HeaderTraceparent, []byte(h.Traceparent)})
	}
	if h.Synthetic {
		out = append(out, Header{HeaderSynthetic, []byte("true")})
	}
	if h.Incomplete > 0 {
		out = append(out, Header{HeaderIncomplete, strconv.AppendInt(nil, h.Incomplete, 10)})
	}
	return out
}

// ParseHeaders reads the headers of a record. It ignores headers that are not Skein's; of a repeated one the last
// counts, as in Kafka's own clients, and of more than MaxLabels labels the first. It also ignores an invalid agent,
// label, trace context or mark (ValidAgent, Label.Valid, Traceparent), as a bad description of a run must not cost an
// event. A record without skein-version and skein-kind is an event of version 1, as written by an agent that does not
// know Skein.
//
// The error is ErrUnknownVersion, which is about this process, or ErrUnknownKind or ErrInvalidHeader, which are about
// the record. The headers that could be read are returned with it.
func ParseHeaders[H AnyHeader](hs []H) (Headers, error) { return ParseHeadersLike(hs, &Headers{}) }

// ParseHeadersLike is ParseHeaders for a record that probably has the same headers as another, such as the next one of
// a run: it shares equal texts with like instead of copying them.
func ParseHeadersLike[H AnyHeader](hs []H, like *Headers) (Headers, error) {
	if seq, ok := numberAfter(hs, like); ok {
		h := *like
		h.Seq = seq
		return h, nil
	}
	h := Headers{Version: Version, Kind: KindEvent, Seq: -1}
	var err error
	labels := labelReader{like: like.Labels}
	bad := func(name, format string, args ...any) {
		if err == nil {
			err = fmt.Errorf("reading header %s: %w: %s", name, ErrInvalidHeader, fmt.Sprintf(format, args...))
		}
	}
	for _, given := range hs {
		x := Header(given)
		switch x.Key {
		case HeaderVersion:
			v, verr := parseVersion(x.Value)
			switch {
			case verr != nil && bySkein(hs):
				h.Version = v
				return h, verr
			case verr != nil:
				bad(x.Key, "%.64q is above %d, and the header %s is missing", x.Value, Version, HeaderWriter)
			case v == 0:
				bad(x.Key, "%.64q is not a version", x.Value)
			default:
				h.Version = v
			}
		case HeaderKind:
			if string(x.Value) == string(like.Kind) && like.Kind != "" {
				h.Kind = like.Kind
				continue
			}
			k, ok := kinds[string(x.Value)]
			if !ok {
				if err == nil {
					err = fmt.Errorf("reading header %s: %w: %.64q", x.Key, ErrUnknownKind, x.Value)
				}
				continue
			}
			h.Kind = k
		case HeaderRunID:
			if string(x.Value) == like.RunID && like.RunID != "" {
				h.RunID = like.RunID
				continue
			}
			id := string(x.Value)
			if verr := ValidateID(id); verr != nil {
				bad(x.Key, "%v", verr)
				continue
			}
			h.RunID = id
		case HeaderSeq:
			v, perr := strconv.ParseUint(string(x.Value), 10, 63)
			if perr != nil {
				bad(x.Key, "%.64q is not a number from 0", x.Value)
				continue
			}
			h.Seq = int64(v)
		case HeaderAgent:
			if a := agentOf(x.Value, like.Agent); a != "" {
				h.Agent = a
			}
		case HeaderTraceparent:
			if h.Traceparent = like.Traceparent; string(x.Value) != like.Traceparent {
				h.Traceparent = Traceparent(string(x.Value))
			}
		case HeaderSynthetic:
			h.Synthetic = string(x.Value) == "true"
		case HeaderIncomplete:
			if n, perr := strconv.ParseUint(string(x.Value), 10, 63); perr == nil {
				h.Incomplete = int64(n)
			}
		default:
			if key, ok := strings.CutPrefix(x.Key, HeaderLabelPrefix); ok {
				labels.add(key, x.Value)
			}
		}
	}
	h.Labels = labels.read()
	return h, err
}

// numberAfter returns the number of an event whose other headers are those of like, as Encode writes them. Most events of a run are
// such, so their headers are compared and not read.
func numberAfter[H AnyHeader](hs []H, like *Headers) (seq int64, ok bool) {
	if like.RunID == "" || like.Version != Version || like.Synthetic || like.Incomplete != 0 {
		return 0, false
	}
	i := 0
	if is(hs, i, HeaderVersion, versionText) {
		i++
	}
	if is(hs, i, HeaderKind, string(like.Kind)) {
		i++
	} else if like.Kind != KindEvent {
		return 0, false
	}
	if !is(hs, i, HeaderRunID, like.RunID) || i+1 == len(hs) {
		return 0, false
	}
	number := Header(hs[i+1])
	if number.Key != HeaderSeq || len(number.Value) == 0 || len(number.Value) > 18 {
		return 0, false
	}
	for _, c := range number.Value {
		if c < '0' || c > '9' {
			return 0, false
		}
		seq = 10*seq + int64(c-'0')
	}
	if i += 2; like.Agent != "" {
		if !is(hs, i, HeaderAgent, like.Agent) {
			return 0, false
		}
		i++
	}
	for _, l := range like.Labels {
		if i == len(hs) {
			return 0, false
		}
		x := Header(hs[i])
		if key, ok := strings.CutPrefix(x.Key, HeaderLabelPrefix); !ok || key != l.Key || string(x.Value) != l.Value {
			return 0, false
		}
		i++
	}
	if like.Traceparent != "" {
		if !is(hs, i, HeaderTraceparent, like.Traceparent) {
			return 0, false
		}
		i++
	}
	if i < len(hs) && Header(hs[i]).Key == HeaderMAC {
		i++
	}
	return seq, i == len(hs)
}

// is reports whether the i-th header is this one.
func is[H AnyHeader](hs []H, i int, key, value string) bool {
	return i < len(hs) && Header(hs[i]).Key == key && string(Header(hs[i]).Value) == value
}

// bySkein reports whether a record of a version above 1 was written by Skein.
func bySkein[H AnyHeader](hs []H) bool {
	return slices.ContainsFunc(hs, func(h H) bool { return Header(h).Key == HeaderWriter && string(Header(h).Value) == writer })
}

// CheckVersion returns ErrUnknownVersion if the headers are those of a newer Skein. It reads no other header;
// ParseHeaders reports an invalid version.
func CheckVersion[H AnyHeader](hs []H) error {
	for _, h := range hs {
		if x := Header(h); x.Key == HeaderVersion { // every one: ParseHeaders reads them all
			if _, err := parseVersion(x.Value); err != nil && bySkein(hs) {
				return err
			}
		}
	}
	return nil
}

var versionText = strconv.Itoa(Version)

// parseVersion returns 0 if the value is not a version, and an error for one above Version.
func parseVersion(value []byte) (int, error) {
	if string(value) == versionText { // nearly always
		return Version, nil
	}
	v, err := strconv.ParseUint(string(value), 10, 31)
	if err != nil {
		v = 0
	}
	if v > Version {
		return int(v), fmt.Errorf("reading header %s: %w %d, this program knows up to %d", HeaderVersion, ErrUnknownVersion, v, Version)
	}
	return int(v), nil
}

// agentOf returns an agent's name, or "" if it is invalid.
func agentOf(value []byte, like string) string {
	if string(value) == like {
		return like
	}
	if s := string(value); ValidAgent(s) {
		return s
	}
	return ""
}

// labelReader collects the labels of a record. It allocates nothing while they equal those of another record, in the same order.
type labelReader struct {
	like []Label
	same int // how many labels, from the first, equal like's
	own  []Label
}

func (r *labelReader) add(key string, value []byte) {
	if r.own == nil && r.same < len(r.like) {
		if l := r.like[r.same]; l.Key == key && l.Value == string(value) {
			r.same++
			return
		}
	}
	l := Label{key, string(value)}
	if !l.Valid() {
		return
	}
	if r.own == nil {
		r.own = slices.Clone(r.like[:r.same])
	}
	if i := slices.IndexFunc(r.own, func(o Label) bool { return o.Key == key }); i >= 0 {
		r.own[i].Value = l.Value
	} else if len(r.own) < MaxLabels {
		r.own = append(r.own, l)
	}
}

func (r *labelReader) read() []Label {
	if r.own != nil || r.same == 0 {
		return r.own
	}
	return r.like[:r.same:r.same]
}
