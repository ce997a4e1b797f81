package runstore

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
)

// purged is a store in a folder, whose files are searched.
type purged struct {
	*storeTest
	dir  string
	next int64
}

// openPurged opens the store that lies in the folder, and closes the one before.
func (p *purged) openPurged(after time.Duration) {
	p.t.Helper()
	if p.Store != nil {
		p.do(p.Store.Close())
	}
	d := newDisk(vfs.Default, p.dir, slog.New(slog.DiscardHandler))
	d.purgeAfter = after
	st, _, err := openStore(d, 3, p.cache)
	p.do(err)
	p.Store = st
}

// say writes a run of a thread with a text.
func (p *purged) say(thread, text string) {
	p.t.Helper()
	e := storeRecord(p.t, thread, fmt.Sprint("r", p.next), record.StatusFinished, p.next)
	e.Value = append(bytes.TrimSuffix(e.Value, []byte("}")), fmt.Sprintf(`,"started":{"type":"RUN_STARTED","text":%q}}`, text)...)
	p.next++
	p.do(p.Apply([]Entry{e}, time.Time{}))
}

func (p *purged) erase(thread string) {
	p.t.Helper()
	p.do(p.Apply([]Entry{{Key: []byte("acme/" + thread), Value: []byte("{}"), Erased: p.next, Offset: p.next}}, time.Time{}))
	p.next++
}

// files returns the files in the folder that have a part of a text: where tables are compressed, something of it may stand for what
// came before.
func (p *purged) files(text string) (names []string) {
	p.t.Helper()
	p.do(filepath.WalkDir(p.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return ignoreGone(err)
		}
		b, err := os.ReadFile(path)
		for part := range slices.Chunk([]byte(text), 16) {
			if bytes.Contains(b, part) {
				names = append(names, filepath.Base(path))
				break
			}
		}
		return ignoreGone(err)
	}))
	return names
}

// ignoreGone passes over files that were removed while the folder is read.
func ignoreGone(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

func secret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// What was erased is in no file any more a while later, and wherever the process ends before that. Other threads have what they had.
func TestStore_RemovesWhatIsErasedFromItsFiles(t *testing.T) {
	for name, c := range map[string]struct {
		flushes int // before the erasure
		reopen  bool
		reset   bool
	}{
		"from a table":                     {flushes: 1},
		"from tables":                      {flushes: 6},
		"after a restart":                  {flushes: 3, reopen: true},
		"where the store is begun anew":    {flushes: 3, reset: true},
		"the same, and after a restart":    {flushes: 2, reset: true, reopen: true},
		"from many tables after a restart": {flushes: 9, reopen: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := &purged{storeTest: &storeTest{t: t, cache: pebble.NewCache(1 << 20)}, dir: t.TempDir()}
			t.Cleanup(p.cache.Unref)
			t.Cleanup(func() { p.do(p.Close()) })
			after := time.Millisecond
			if c.reopen {
				after = time.Hour
			}
			p.openPurged(after)
			erased, other := secret(), secret()
			for range c.flushes {
				p.say("t", erased)
				p.say("u", other)
				p.do(p.db.Flush())
			}
			if len(p.files(erased)) == 0 || len(p.files(other)) == 0 {
				t.Fatal("the text is in no file")
			}
			p.say("t", erased) // in memory
			p.say("u", other)
			p.erase("t")
			if c.reset {
				p.do(p.Reset("another", time.Now()))
				p.say("u", other)
			}
			if c.reopen {
				if len(p.files(erased)) == 0 {
					t.Fatal("the text is in no file before the restart")
				}
				p.openPurged(time.Millisecond)
			}
			kafkatest.Eventually(p.t, "nothing is left of it", func() bool { // Pebble does it beside
				marks, err := p.marks()
				p.do(err)
				return len(marks) == 0 && len(p.files(erased)) == 0
			})
			p.do(p.db.Flush()) // or it may be in memory alone
			if len(p.files(other)) == 0 {
				t.Error("the text of another thread is gone")
			}
		})
	}
}
