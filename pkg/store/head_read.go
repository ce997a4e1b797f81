package store

import (
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
)

// headReader reads what EncodeHead has written, in one pass and several times as fast as encoding/json, which took most of the time that a lineage of many
// runs costs here. It knows that form alone, members in any order: a text of another form is left to encoding/json.
type headReader struct {
	b       []byte
	i       int
	foreign bool // the text has another form
}

// readHead is decodeHead for the form of EncodeHead; it reports whether the text has that.
func readHead(text []byte) (out Run, ok bool) {
	r := &headReader{b: text}
	r.members(func(name string) {
		switch name {
		case "run":
			r.run(&out.Run)
		case "facts":
			r.facts(&out.Facts)
		case "counts":
			out.Counts = &Counts{}
			r.members(func(name string) {
				switch name {
				case "messages":
					out.Counts.Messages = int(r.number())
				case "inputMessages":
					out.Counts.InputMessages = int(r.number())
				default:
					r.foreign = true
				}
			})
		default:
			r.foreign = true
		}
	})
	return out, !r.foreign && r.i == len(r.b)
}

func (r *headReader) run(to *record.Run) {
	r.members(func(name string) {
		switch name {
		case "tenant":
			to.Tenant = r.text()
		case "threadId":
			to.ThreadID = r.text()
		case "runId":
			to.RunID = r.text()
		case "clientRunId":
			to.ClientRunID = r.text()
		case "parentRunId":
			to.ParentRunID = r.text()
		case "parentBy":
			to.ParentBy = record.ParentBy(r.text())
		case "spawnedBy":
			if quoted := r.quoted(); !r.foreign {
				r.foreign = !json.Valid(quoted) || to.SpawnedBy.UnmarshalJSON(quoted) != nil
			}
		case "branchId":
			to.BranchID = r.text()
		case "rootRunId":
			to.RootRunID = r.text()
		case "depth":
			to.Depth = int(r.number())
		case "status":
			to.Status = record.Status(r.text())
		case "agent":
			to.Agent = r.text()
		case "input":
			r.exactly("{}")
			to.Input = json.RawMessage("{}")
		case "inputForm":
			to.InputForm = record.InputForm(r.text())
		case "rewrote":
			to.Rewrote = []string{}
			r.elements(func() { to.Rewrote = append(to.Rewrote, r.text()) })
		case "base":
			to.Base = r.text()
		case "messageCount":
			to.MessageCount = int(r.number())
		case "synthetic":
			to.Synthetic = r.truth()
		case "stats":
			r.stats(&to.Stats)
		case "startedAt":
			to.StartedAt = r.time()
		case "endedAt":
			at := r.time()
			to.EndedAt = &at
		case "raw":
			r.raw(&to.Raw)
		case "foldVersion":
			to.FoldVersion = int(r.number())
		case "truncated":
			to.Truncated = r.truth()
		case "rawLost":
			to.RawLost = r.truth()
		default:
			r.foreign = true
		}
	})
}

func (r *headReader) stats(to *record.Stats) {
	r.members(func(name string) {
		switch name {
		case "events":
			r.exactly("{}")
			to.Events = agui.StringMap[int64]{}
		case "eventBytes":
			r.exactly("{}")
			to.EventBytes = agui.StringMap[int64]{}
		case "messages":
			to.Messages = int(r.number())
		case "durationMs":
			n := r.number()
			to.Duration = &n
		default:
			r.foreign = true
		}
	})
}

func (r *headReader) raw(to *record.Raw) {
	r.members(func(name string) {
		switch name {
		case "partition":
			n := r.number()
			to.Partition, r.foreign = int32(n), r.foreign || int64(int32(n)) != n
		case "first":
			to.First = r.number()
		case "next":
			to.Next = r.number()
		case "ranges":
			if r.at('n') {
				r.exactly("null")
				return
			}
			to.Ranges = [][2]int64{}
			r.elements(func() {
				var part [2]int64
				n := 0
				r.elements(func() {
					if n < len(part) {
						part[n] = r.number()
					}
					n++
				})
				r.foreign = r.foreign || n != len(part)
				to.Ranges = append(to.Ranges, part)
			})
		case "events":
			to.Events = r.number()
		case "sha256":
			to.SHA256 = r.text()
		case "nextSeq":
			to.NextSeq = r.number()
		default:
			r.foreign = true
		}
	})
}

func (r *headReader) facts(to *Facts) {
	r.members(func(name string) {
		switch name {
		case "errorCode":
			to.ErrorCode = r.text()
		case "errorMessage":
			to.ErrorMessage = r.text()
		case "cancelledBy":
			to.CancelledBy = r.text()
		case "asked":
			to.Asked = r.text()
		case "question":
			to.Question = r.text()
		case "reply":
			to.Reply = r.text()
		case "resumed":
			to.Resumed = r.text()
		default:
			r.foreign = true
		}
	})
}

// at reports whether c comes next.
func (r *headReader) at(c byte) bool { return r.i < len(r.b) && r.b[r.i] == c }

// exactly reads a text as it stands.
func (r *headReader) exactly(text string) {
	if r.foreign || len(r.b)-r.i < len(text) || string(r.b[r.i:r.i+len(text)]) != text {
		r.foreign = true
		return
	}
	r.i += len(text)
}

// members reads an object, and calls f at the value of each member. The name is good until f returns.
func (r *headReader) members(f func(name string)) {
	r.list('{', '}', func() {
		quoted := r.quoted()
		r.exactly(":")
		if !r.foreign {
			f(string(quoted[1 : len(quoted)-1])) // one with an escape is not known
		}
	})
}

// elements reads an array, and calls f at each element.
func (r *headReader) elements(f func()) { r.list('[', ']', f) }

func (r *headReader) list(open, end byte, f func()) {
	if r.foreign = r.foreign || !r.at(open); r.foreign {
		return
	}
	r.i++
	for first := true; !r.foreign && !r.at(end); first = false {
		if !first {
			r.exactly(",")
		}
		f()
	}
	r.i++
}

// quoted reads a string, and returns it with its quotes.
func (r *headReader) quoted() []byte {
	if r.foreign = r.foreign || !r.at('"'); r.foreign {
		return nil
	}
	for end := r.i + 1; end < len(r.b); end++ {
		switch c := r.b[end]; {
		case c == '\\':
			end++
		case c == '"':
			s := r.b[r.i : end+1]
			r.i = end + 1
			return s
		case c < ' ':
			r.foreign = true
			return nil
		}
	}
	r.foreign = true
	return nil
}

func (r *headReader) text() (s string) {
	quoted := r.quoted()
	if r.foreign {
		return ""
	}
	for _, c := range quoted {
		if c == '\\' || c >= utf8.RuneSelf {
			r.foreign = json.Unmarshal(quoted, &s) != nil
			return s
		}
	}
	return string(quoted[1 : len(quoted)-1])
}

func (r *headReader) time() (t time.Time) {
	quoted := r.quoted()
	if !r.foreign {
		r.foreign = t.UnmarshalJSON(quoted) != nil
	}
	return t
}

func (r *headReader) truth() bool {
	if r.at('t') {
		r.exactly("true")
		return true
	}
	r.exactly("false")
	return false
}

// number reads an integer of up to 18 digits, which has no leading zeroes.
func (r *headReader) number() (n int64) {
	sign := int64(1)
	if r.at('-') {
		sign = -1
		r.i++
	}
	from := r.i
	for ; r.i < len(r.b) && r.b[r.i] >= '0' && r.b[r.i] <= '9'; r.i++ {
		n = 10*n + int64(r.b[r.i]-'0')
	}
	if digits := r.i - from; digits == 0 || digits > 18 || digits > 1 && r.b[from] == '0' {
		r.foreign = true
	}
	return sign * n
}
