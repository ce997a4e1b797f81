package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// epoch is when the suite's runs start.
var epoch = time.Date(2026, 9, 17, 12, 0, 0, 0, time.UTC)

// key names a run.
type key struct{ tenant, thread, run string }

// entry returns a record of a run. The run is a copy: later changes to it do not reach the entry.
func (k key) entry(version int64, r *record.Run) store.Entry {
	e := store.Entry{Partition: 3, Version: version, Tenant: k.tenant, ThreadID: k.thread, RunID: k.run}
	if r != nil {
		c := *r
		c.Tenant, c.ThreadID, c.RunID = k.tenant, k.thread, k.run
		e.Run = &c
	}
	return e
}

// run returns a record that starts at the given offset, in the given status, with one message per
// name. A terminal one has a state.
func (k key) record(first int64, status record.Status, messages ...string) *record.Run {
	r := &record.Run{
		Tenant: k.tenant, ThreadID: k.thread, RunID: k.run,
		Lineage:      record.Lineage{ParentBy: record.ParentNone, BranchID: k.run, RootRunID: k.run},
		Status:       status,
		MessageCount: len(messages),
		StartedAt:    epoch.Add(time.Duration(first) * time.Second),
		Stats: record.Stats{
			Events:     map[string]int64{"RUN_STARTED": 1},
			EventBytes: map[string]int64{"RUN_STARTED": 60},
			Messages:   len(messages),
		},
		Raw:         record.Raw{Partition: 3, First: first, Next: first + 5, Ranges: [][2]int64{{first, first + 5}}, Events: 5, NextSeq: -1},
		FoldVersion: 1,
	}
	for _, m := range messages {
		r.Messages = append(r.Messages, message(m, "assistant", "text of "+m))
	}
	if status == record.StatusRunning {
		r.Open = &record.Open{Fold: json.RawMessage(`{"lanes":[]}`), Hash: []byte("hash")}
		return r
	}
	end := r.StartedAt.Add(2 * time.Second)
	r.EndedAt = &end
	r.State = json.RawMessage(fmt.Sprintf(`{"end":%d}`, first))
	return r
}

// message returns a message with its content as text.
func message(id, role, content string) agui.Message {
	raw, err := json.Marshal(map[string]string{"id": id, "role": role, "content": content})
	if err != nil {
		panic(err) // a map of strings
	}
	return agui.Message{ID: id, Role: role, Raw: raw}
}

func write(t testing.TB, s Store, entries ...store.Entry) {
	t.Helper()
	if err := s.Write(t.Context(), entries); err != nil {
		t.Fatalf("Write: %v", err)
	}
}

// dump returns all that a store says of a thread, as lines that can be compared and read.
func dump(ctx context.Context, s Store, tenant, thread string) (string, error) {
	runs, err := s.Thread(ctx, tenant, thread)
	if errors.Is(err, store.ErrNotFound) {
		return "no such thread\n", nil
	}
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, r := range runs {
		text, err := record.EncodeRun(&r.Run)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "run %q version %d %s\n", r.RunID, r.Version, text)
	}
	contents, err := s.Contents(ctx, tenant, thread, runs)
	if err != nil {
		return "", err
	}
	for _, id := range slices.Sorted(maps.Keys(contents)) {
		fmt.Fprintf(&b, "contents %q %s\n", id, contentText(contents[id]))
	}
	return b.String(), nil
}

func contentText(c store.Content) string {
	var b strings.Builder
	for _, m := range c.Messages {
		fmt.Fprintf(&b, "own %q %q %s; ", m.ID, m.Role, m.Raw)
	}
	for _, m := range c.InputMessages {
		fmt.Fprintf(&b, "input %q %q %s; ", m.ID, m.Role, m.Raw)
	}
	fmt.Fprintf(&b, "state nil=%t %s", c.State == nil, c.State)
	return b.String()
}

// mustDump dumps the tenant's thread "thread".
func mustDump(t testing.TB, s Store, tenant string) string {
	t.Helper()
	d, err := dump(t.Context(), s, tenant, "thread")
	if err != nil {
		t.Fatalf("reading a thread of %s: %v", tenant, err)
	}
	return d
}

func mustRun(t testing.TB, s Store, k key) store.Run {
	t.Helper()
	r, err := s.Run(t.Context(), k.tenant, k.thread, k.run)
	if err != nil {
		t.Fatalf("Run(%q): %v", k, err)
	}
	return r
}

// mustContents reads contents of runs of a thread by their rows, of those that are there.
func mustContents(t testing.TB, s Store, tenant, thread string, runs ...string) map[string]store.Content {
	t.Helper()
	rows, err := s.Thread(t.Context(), tenant, thread)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("Thread: %v", err)
	}
	rows = slices.DeleteFunc(rows, func(r store.Run) bool { return !slices.Contains(runs, r.RunID) })
	c, err := s.Contents(t.Context(), tenant, thread, rows)
	if err != nil {
		t.Fatalf("Contents: %v", err)
	}
	return c
}

func wantNotFound(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, store.ErrNotFound) {
		t.Errorf("error %v, want ErrNotFound", err)
	}
}

// equal compares texts that may be long.
func equal(t testing.TB, what, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	part := func(s string) string { return s[max(0, min(at-80, len(s))):min(len(s), at+200)] }
	t.Errorf("%s differs at byte %d:\n got …%s\nwant …%s", what, at, part(got), part(want))
}

// rowText is the JSON of a record as a row holds it.
func rowText(t testing.TB, r *record.Run) string {
	t.Helper()
	c := *r
	c.Messages, c.InputMessages, c.State, c.Open = nil, nil, nil, nil
	b, err := record.EncodeRun(&c)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
