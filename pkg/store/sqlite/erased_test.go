package sqlite

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// holding returns the files of a folder that hold a text.
func holding(t *testing.T, dir, text string) (names []string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte(text)) {
			names = append(names, f.Name())
		}
	}
	return names
}

// Once an erasure is written, no byte of the file or its log tells what was erased; another thread's text stays.
func TestStore_ErasedTextIsInNoByte(t *testing.T) {
	const secret, other = "my secret is 4711", "what another thread says"
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "store.db"))
	write := func(entries ...store.Entry) {
		t.Helper()
		if err := s.Write(t.Context(), entries); err != nil {
			t.Fatal(err)
		}
	}
	saying := func(version int64, thread, text string) store.Entry {
		raw, err := json.Marshal(map[string]string{"id": "m", "role": "user", "content": text})
		if err != nil {
			t.Fatal(err)
		}
		return store.Entry{Version: version, Tenant: "acme", ThreadID: thread, RunID: "r", Run: &record.Run{
			Status: record.StatusFinished, Lineage: record.Lineage{ParentBy: record.ParentNone}, State: raw,
			Messages: []agui.Message{{ID: "m", Role: "user", Raw: raw}},
		}}
	}
	write(saying(1, "erased", secret), saying(2, "kept", other))
	titled := func(version int64, title string) {
		write(store.Entry{Version: version, Tenant: "acme", ThreadID: "erased", Detail: &record.Detail{Name: record.DetailTitle, Value: title}})
	}
	titled(1, "titled: "+secret)
	titled(2, secret)
	if names := holding(t, dir, secret); len(names) == 0 {
		t.Fatal("the text is nowhere before it is erased: the test looks in the wrong place")
	}
	write(store.Entry{Version: 3, Tenant: "acme", ThreadID: "erased", RunID: "r"})
	titled(3, "")
	write(store.Entry{Version: 4, Tenant: "acme", ThreadID: "erased", Erasure: &store.Erasure{Below: 9, At: time.Unix(1, 0)}})
	if names := holding(t, dir, secret); len(names) > 0 {
		t.Errorf("the erased text is in %v", names)
	}
	if names := holding(t, dir, other); len(names) == 0 {
		t.Error("the other thread's text is gone")
	}
}
