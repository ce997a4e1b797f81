package agui

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"time"
)

func TestDecode_KeepsTheBytes(t *testing.T) {
	in := []byte(` {"zeta":1.50,"type":"TEXT_MESSAGE_CONTENT", "messageId":"m\u00e9","delta":"\ud83d","rawEvent":{"n":12345678901234567890}}`)
	ev, err := Decode(in)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(ev.Raw, in) {
		t.Errorf("raw changed: %s", ev.Raw)
	}
	if id, _ := ev.String(FieldMessageID); id != "mé" {
		t.Errorf("id %q", id)
	}
	if d := ev.Text(FieldDelta); string(d) != `\ud83d` {
		t.Errorf("delta %s", d)
	}
	if !ev.HasUndescribed() {
		t.Error("zeta is described by nothing")
	}
}

func TestDecode_KeepsUnknownTypes(t *testing.T) {
	ev, err := Decode([]byte(`{"type":"FROM_THE_FUTURE","messageId":7}`))
	if err != nil || ev.Type != "FROM_THE_FUTURE" || ev.Type.Known() {
		t.Errorf("got %+v, %v", ev, err)
	}
}

func TestDecode_TheLastOfADoubleMemberCounts(t *testing.T) {
	ev, err := Decode([]byte(`{"type":"RAW","type":"STEP_STARTED","stepName":1,"stepName":"b"}`))
	if err != nil {
		t.Fatal(err)
	}
	if name, _ := ev.String(FieldStepName); ev.Type != StepStarted || name != "b" {
		t.Errorf("got %s %s", ev.Type, name)
	}
}

func TestDecode_TimestampsAreMilliseconds(t *testing.T) {
	for in, want := range map[string]int64{"1795250047458": 1795250047458, "1795250047": 1795250047000, "1.795250047e9": 1795250047000, "0": 0,
		"-1": -1000} {
		ev, err := Decode([]byte(`{"type":"TEXT_MESSAGE_END","messageId":"m","timestamp":` + in + `}`))
		if err != nil || !ev.HasTimestamp || ev.Timestamp != want {
			t.Errorf("%s: got %+v, %v", in, ev.Timestamp, err)
		}
	}
}

func TestEvent_TimeIsOneThatRFC3339CanWrite(t *testing.T) {
	const last = 253402300799999
	for in, want := range map[string]time.Time{
		"1795250047458": time.UnixMilli(1795250047458).UTC(), "253402300799999": time.UnixMilli(last).UTC(),
		"253402300800000": {}, "1795250047458000": {}, "0": {}, "-1": {},
	} {
		ev, err := Decode([]byte(`{"type":"TEXT_MESSAGE_END","messageId":"m","timestamp":` + in + `}`))
		if err != nil || ev.Time() != want {
			t.Errorf("%s: got %v, %v, want %v", in, ev.Time(), err, want)
		}
	}
	if ev, err := Decode([]byte(`{"type":"TEXT_MESSAGE_END","messageId":"m"}`)); err != nil || !ev.Time().IsZero() {
		t.Errorf("none: got %v, %v", ev.Time(), err)
	}
}

// Each row is an event that @ag-ui/core 1.0.0's schemas reject (after the upgrade table).
func TestDecode_RefusesWhatTheSchemaRejects(t *testing.T) {
	for name, row := range map[string]struct{ in, rule string }{
		"not JSON":                       {`{"type":`, RuleNotJSON},
		"not UTF-8":                      {"{\"type\":\"\xff\"}", RuleNotJSON},
		"a list":                         {`[]`, RuleNotObject},
		"a string":                       {`"RUN_STARTED"`, RuleNotObject},
		"no type":                        {`{"messageId":"m"}`, RuleNoType},
		"an empty type":                  {`{"type":""}`, RuleNoType},
		"a type that is no string":       {`{"type":3}`, RuleNoType},
		"something behind the object":    {`{"type":"RAW","event":1} x`, RuleNotJSON},
		"no id":                          {`{"type":"TEXT_MESSAGE_START"}`, RuleSchema},
		"a null id":                      {`{"type":"TEXT_MESSAGE_START","messageId":null}`, RuleSchema},
		"a number as id":                 {`{"type":"TOOL_CALL_ARGS","toolCallId":1,"delta":""}`, RuleSchema},
		"no delta":                       {`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m"}`, RuleSchema},
		"an unknown role":                {`{"type":"TEXT_MESSAGE_START","messageId":"m","role":"wizard"}`, RuleSchema},
		"an interrupt's owner as a list": {`{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"interrupt","interrupts":[{"id":"i","reason":"r","subagentRunId":[]}]}}`, RuleSchema},
		"a tool message's error as null": {`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"m","role":"tool","toolCallId":"c","content":"","error":null}]}`, RuleSchema},
		"a user message's name as null":  {`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"m","role":"user","content":"","name":null}]}`, RuleSchema},
		"a tool role on text":            {`{"type":"TEXT_MESSAGE_START","messageId":"m","role":"tool"}`, RuleSchema},
		"a fractional timestamp":         {`{"type":"TEXT_MESSAGE_END","messageId":"m","timestamp":1.5}`, RuleSchema},
		"a null timestamp":               {`{"type":"TEXT_MESSAGE_END","messageId":"m","timestamp":null}`, RuleSchema},
		"a timestamp too large":          {`{"type":"TEXT_MESSAGE_END","messageId":"m","timestamp":9007199254740992}`, RuleSchema},
		"null metadata":                  {`{"type":"TEXT_MESSAGE_END","messageId":"m","metadata":null}`, RuleSchema},
		"a list as metadata":             {`{"type":"TEXT_MESSAGE_END","messageId":"m","metadata":[]}`, RuleSchema},
		"null subagentRunId":             {`{"type":"TEXT_MESSAGE_END","messageId":"m","subagentRunId":null}`, RuleSchema},
		"a patch with a bad pointer":     {`{"type":"STATE_DELTA","delta":[{"op":"add","path":"a","value":1}]}`, RuleSchema},
		"a patch with a bad escape":      {`{"type":"STATE_DELTA","delta":[{"op":"remove","path":"/~2"}]}`, RuleSchema},
		"a patch without value":          {`{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/a"}]}`, RuleSchema},
		"a move without from":            {`{"type":"STATE_DELTA","delta":[{"op":"move","path":"/a"}]}`, RuleSchema},
		"no snapshot":                    {`{"type":"STATE_SNAPSHOT"}`, RuleSchema},
		"messages without id":            {`{"type":"MESSAGES_SNAPSHOT","messages":[{"role":"user","content":"x"}]}`, RuleSchema},
		"a user without content":         {`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"a","role":"user"}]}`, RuleSchema},
		"an assistant with parts":        {`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"a","role":"assistant","content":[]}]}`, RuleSchema},
		"a tool message without call":    {`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"a","role":"tool","content":""}]}`, RuleSchema},
		"a tool call without function":   {`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"a","role":"assistant","toolCalls":[{"id":"c","type":"function"}]}]}`, RuleSchema},
		"an activity with text":          {`{"type":"ACTIVITY_SNAPSHOT","messageId":"a","activityType":"p","content":"x"}`, RuleSchema},
		"a text part without text":       {`{"type":"TOOL_CALL_RESULT","messageId":"a","toolCallId":"c","content":[{"type":"text"}]}`, RuleSchema},
		"a media part without source":    {`{"type":"TOOL_CALL_RESULT","messageId":"a","toolCallId":"c","content":[{"type":"image"}]}`, RuleSchema},
		"an interrupt outcome of none":   {`{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"interrupt","interrupts":[]}}`, RuleSchema},
		"an interrupt without reason":    {`{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"interrupt","interrupts":[{"id":"i"}]}}`, RuleSchema},
		"negative usage":                 {`{"type":"RUN_ERROR","message":"m","usage":[{"inputTokens":-1}]}`, RuleSchema},
		"no value":                       {`{"type":"CUSTOM","name":"n"}`, RuleSchema},
		"an encrypted value of no kind":  {`{"type":"REASONING_ENCRYPTED_VALUE","subtype":"x","entityId":"e","encryptedValue":"v"}`, RuleSchema},
		"an encrypted value's odd type":  {`{"type":"REASONING_ENCRYPTED_VALUE","subtype":"message","entityId":"e","encryptedValue":"v","encryptedValueType":1}`, RuleSchema},
		"an odd type in a message":       {`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"a","role":"user","content":"","encryptedValue":"v","encryptedValueType":null}]}`, RuleSchema},
		"an odd type in a tool call":     {`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"a","role":"assistant","toolCalls":[{"id":"c","type":"function","function":{"name":"n","arguments":""},"encryptedValueType":{}}]}]}`, RuleSchema},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Decode([]byte(row.in))
			var m *MalformedError
			if !errors.As(err, &m) || m.Rule != row.rule {
				t.Errorf("want rule %s, got %v", row.rule, err)
			}
		})
	}
}

func TestDecode_AcceptsWhatTheSchemaAccepts(t *testing.T) {
	for _, in := range []string{
		`{"type":"TEXT_MESSAGE_CHUNK"}`,
		`{"type":"STATE_SNAPSHOT","snapshot":null}`,
		`{"type":"STATE_SNAPSHOT","snapshot":false}`,
		`{"type":"CUSTOM","name":"n","value":null}`,
		`{"type":"STATE_DELTA","delta":[]}`,
		`{"type":"STATE_DELTA","delta":[{"op":"invented","path":"nowhere"}]}`,
		`{"type":"TEXT_MESSAGE_END","messageId":"","timestamp":1e3}`,
		`{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"of another version"}}`,
		`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"a","role":"of another version"}]}`,
		`{"type":"TOOL_CALL_RESULT","messageId":"a","toolCallId":"c","content":[{"type":"hologram"}]}`,
	} {
		if _, err := Decode([]byte(in)); err != nil {
			t.Errorf("%s: %v", in, err)
		}
	}
}

// FuzzDecode: no panic; an accepted event gives back its bytes, and decodes the same in an event
// that is used again.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"d","timestamp":1}`))
	f.Add([]byte(`{"type":"RUN_STARTED","runId":"r","input":{"messages":["hi",{"content":[{"type":"binary","mimeType":"image/png","data":"x"}]}],"resume":{}}}`))
	f.Add([]byte(`{"type":"STATE_DELTA","patch":{"op":"add","path":"/a","value":[]}}`))
	reused := new(Event)
	f.Fuzz(func(t *testing.T, b []byte) {
		ev, err := Decode(b)
		again := reused.Decode(b)
		if (err == nil) != (again == nil) {
			t.Fatalf("%v, then %v", err, again)
		}
		if err != nil {
			if !IsMalformed(err) {
				t.Fatalf("not about the data: %v", err)
			}
			return
		}
		if !bytes.Equal(ev.Raw, b) {
			t.Fatal("the bytes changed")
		}
		for fld := range numFields {
			if !bytes.Equal(ev.JSON(fld), reused.JSON(fld)) {
				t.Fatalf("%s: %s, then %s", fld, ev.JSON(fld), reused.JSON(fld))
			}
		}
		if in := ev.Input(""); in != nil {
			for _, m := range in.Messages {
				if !json.Valid(m.Raw) {
					t.Fatalf("message %s", m.Raw)
				}
			}
		}
	})
}
