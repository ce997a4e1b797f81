package artifact

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
)

// Encode returns the artifact as one line of JSON, with its fields in the order of the contract's example, so the same artifact
// gives the same bytes. For an artifact that breaks a rule it returns an *Error.
func (a *Artifact) Encode() ([]byte, error) {
	if err := a.Validate(); err != nil {
		return nil, err
	}
	b := []byte(`{"schema":"` + Schema + `","framework":"` + Framework + `","surface":"` + Surface + `"`)
	b = appendField(b, "thread_id_ref", a.ThreadIDRef)
	b = appendField(b, "run_id_ref", a.RunIDRef)
	if a.ParentRunIDRef != "" {
		b = appendField(b, "parent_run_id_ref", a.ParentRunIDRef)
	}
	b = appendField(b, "started_at", timeText(a.StartedAt))
	b = append(b, `,"messages":[`...)
	for i, m := range a.Messages {
		if i > 0 {
			b = append(b, ',')
		}
		b = agui.AppendString(append(b, `{"id":`...), m.ID)
		b = appendField(b, "role", m.Role)
		b = appendField(b, "content", m.Content)
		if m.Name != "" {
			b = appendField(b, "name", m.Name)
		}
		b = append(b, '}')
	}
	b = append(b, ']')
	b = appendField(b, "terminal_event", string(a.TerminalEvent))
	if !a.FinishedAt.IsZero() {
		b = appendField(b, "finished_at", timeText(a.FinishedAt))
	}
	if a.ErrorMessage != "" {
		b = appendField(b, "error_message", a.ErrorMessage)
	}
	if a.ErrorCode != "" {
		b = appendField(b, "error_code", a.ErrorCode)
	}
	return append(b, '}'), nil
}

func timeText(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func appendField(b []byte, name, value string) []byte {
	b = append(append(append(b, ',', '"'), name...), '"', ':')
	return agui.AppendString(b, value)
}

// Decode reads an artifact. It returns an *Error if the artifact breaks a rule.
func Decode(b []byte) (*Artifact, error) {
	if err := agui.Check(b); err != nil {
		return nil, refuse(RuleJSON, "", "%v", err)
	}
	fields, err := readObject("", b, required, optional)
	if err != nil {
		return nil, err
	}
	for _, c := range []struct {
		field, want string
		rule        Rule
	}{{"schema", Schema, RuleSchema}, {"framework", Framework, RuleFramework}, {"surface", Surface, RuleSurface}} {
		is, err := fields.text(c.field)
		if err != nil {
			return nil, err
		}
		if is != c.want {
			return nil, refuse(c.rule, c.field, "it is %.80q, this is a reader of %q", is, c.want)
		}
	}
	var a Artifact
	var terminal string
	if err := fields.texts(map[string]*string{
		"thread_id_ref": &a.ThreadIDRef, "run_id_ref": &a.RunIDRef, "parent_run_id_ref": &a.ParentRunIDRef,
		"terminal_event": &terminal, "error_message": &a.ErrorMessage, "error_code": &a.ErrorCode,
	}); err != nil {
		return nil, err
	}
	a.TerminalEvent = agui.Type(terminal)
	if a.StartedAt, err = fields.time("started_at"); err != nil {
		return nil, err
	}
	if a.FinishedAt, err = fields.time("finished_at"); err != nil {
		return nil, err
	}
	if a.Messages, err = readMessages(fields.values["messages"]); err != nil {
		return nil, err
	}
	if err := a.Validate(); err != nil {
		return nil, err
	}
	return &a, nil
}

var (
	required        = []string{"schema", "framework", "surface", "thread_id_ref", "run_id_ref", "started_at", "messages", "terminal_event"}
	optional        = []string{"parent_run_id_ref", "finished_at", "error_message", "error_code"}
	messageRequired = []string{"id", "role", "content"}
	messageOptional = []string{"name"}
)

func readMessages(list json.RawMessage) ([]Message, error) {
	if !agui.IsArray(list) {
		return nil, refuse(RuleType, "messages", "it must be a list")
	}
	out := []Message{}
	for raw := range agui.Elements(list) {
		where := at("messages", len(out))
		if agui.Lookup(raw, "toolCalls") != nil || agui.Lookup(raw, "tool_calls") != nil {
			return nil, refuse(RuleToolCalls, where, "a message that calls tools has no place here")
		}
		if agui.IsArray(agui.Lookup(raw, "content")) {
			return nil, refuse(RuleContentParts, where+".content", "it must be a text, not a list of parts")
		}
		fields, err := readObject(where, raw, messageRequired, messageOptional)
		if err != nil {
			return nil, err
		}
		var m Message
		if err := fields.texts(map[string]*string{"id": &m.ID, "role": &m.Role, "content": &m.Content, "name": &m.Name}); err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// object is a JSON object whose fields are those of the contract.
type object struct {
	where  string
	values map[string]json.RawMessage
}

func readObject(where string, raw json.RawMessage, required, optional []string) (object, error) {
	o := object{where: where, values: map[string]json.RawMessage{}}
	if !agui.IsObject(bytes.TrimSpace(raw)) {
		if where == "" {
			return o, refuse(RuleJSON, "", "it must be a JSON object")
		}
		return o, refuse(RuleType, where, "it must be an object")
	}
	known := make(map[string]bool, len(required)+len(optional))
	for _, names := range [][]string{required, optional} {
		for _, name := range names {
			known[name] = true
		}
	}
	for i := agui.FirstMember(raw); i >= 0; { // Members would hide a repeated name
		text, value, next := (*agui.Spans)(nil).MemberAt(raw, i)
		name := agui.TextOf(text).String()
		i = next
		switch {
		case !known[name]:
			return o, refuse(RuleUnknown, o.path(name), "the contract has no such field")
		case o.values[name] != nil:
			return o, refuse(RuleRepeated, o.path(name), "it stands twice")
		}
		o.values[name] = value
	}
	for _, name := range required {
		if o.values[name] == nil {
			return o, refuse(RuleMissing, o.path(name), "it is required")
		}
	}
	return o, nil
}

func (o object) path(name string) string {
	if len(name) > 80 {
		name = name[:80]
	}
	if o.where == "" {
		return name
	}
	return o.where + "." + name
}

// text returns a string field, or "" if it is absent. A field that is present must not be empty, except content.
func (o object) text(name string) (string, error) {
	v := o.values[name]
	if v == nil {
		return "", nil
	}
	if !agui.IsString(v) {
		return "", refuse(RuleType, o.path(name), "it must be a text")
	}
	s := agui.TextOf(v).String()
	if s == "" && name != "content" {
		return "", refuse(RuleLength, o.path(name), "it is empty")
	}
	return s, nil
}

// texts reads string fields in the order of their names, so that the first error is always the same.
func (o object) texts(to map[string]*string) error {
	for _, name := range slices.Sorted(maps.Keys(to)) {
		s, err := o.text(name)
		if err != nil {
			return err
		}
		*to[name] = s
	}
	return nil
}

// rfc3339 is the form of times. time.Parse also accepts a comma, hours of one digit and offsets of a day.
var rfc3339 = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

func (o object) time(name string) (time.Time, error) {
	s, err := o.text(name)
	if err != nil || s == "" {
		return time.Time{}, err
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || !rfc3339.MatchString(s) {
		return time.Time{}, refuse(RuleTime, o.path(name), "%.80q is not a time as RFC 3339 writes it", s)
	}
	if t.IsZero() { // the zero time means none
		return time.Time{}, refuse(RuleTime, o.path(name), "the year 1 is no time of a run")
	}
	return t.UTC(), nil
}
