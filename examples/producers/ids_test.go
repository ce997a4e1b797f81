package producers

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/schemas"
)

// thread is whose a thread is, and its id.
type thread struct{ tenant, id string }

// words are characters of many kinds, what looks like something else in a key, a path or a query, and ids of 512 bytes.
var words = []string{
	"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~",
	" !\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
	"äöüßéñçøåłžşığ",
	"Журналعربיעברית漢字かな한국어ไทยहिन्दी",
	"🧶👩‍🚀🏳️‍🌈🇪🇺e\u0301\u200d\ufeff\u2028\u00a0",
	"\x00\x01\t\n\r\x1b\x7f\u0080\uffff",
	"/", "//", "%", "%2F", "%2f", "%252F", "%00", "...", "/..", "../", "./.", " ", "  ", "+", "%20", "a/b", "a%2Fb", "a b", "~2", "?q=1#f",
	strings.Repeat("/", record.MaxIDBytes), strings.Repeat("%", record.MaxIDBytes), strings.Repeat("🧶", record.MaxIDBytes/4),
	strings.Repeat(" ", record.MaxIDBytes),
}

// oddThreads returns threads whose ids are those of the key vectors and words that ingest takes.
func oddThreads(t *testing.T) []thread {
	t.Helper()
	var vectors struct {
		Keys []struct{ Parts []string }
	}
	if err := json.Unmarshal(schemas.KeyVectors, &vectors); err != nil {
		t.Fatal(err)
	}
	var out []thread
	for _, v := range vectors.Keys {
		if len(v.Parts) == 2 {
			out = append(out, thread{v.Parts[0], v.Parts[1]})
		}
	}
	if len(out) < 10 {
		t.Fatalf("%d vectors have a tenant and a thread", len(out))
	}
	for _, w := range words {
		out = append(out, thread{"acme", w}, thread{w, "thread"})
	}
	seen := map[thread]bool{}
	return slices.DeleteFunc(out, func(x thread) bool {
		twice := seen[x]
		seen[x] = true
		return twice || record.ValidateID(x.tenant) != nil || record.ValidateNewID(x.id) != nil
	})
}
