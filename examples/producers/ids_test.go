package producers

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/schemas"
)

// thread is whose a thread is, and its id.
type thread struct{ tenant, id string }

// alphabets are what odd ids are made of.
var alphabets = []string{
	"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~",
	" !\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
	"äöüßéñçøåłžşığ",
	"Журналعربיעברית漢字かな한국어ไทยहिन्दी",
	"🧶👩‍🚀🏳️‍🌈🇪🇺e\u0301\u200d\ufeff\u2028\u00a0",
	"\x00\x01\t\n\r\x1b\x7f\u0080\uffff",
}

// words are what looks like something else in a key, a path or a query.
var words = []string{
	"/", "//", "%", "%2F", "%2f", "%252F", "%00", "...", "/..", "../", "./.", " ", "  ", "+", "%20", "a/b", "a%2Fb", "a b", "~2", "?q=1#f",
	strings.Repeat("/", record.MaxIDBytes), strings.Repeat("%", record.MaxIDBytes), strings.Repeat("🧶", record.MaxIDBytes/4),
	strings.Repeat(" ", record.MaxIDBytes),
}

// oddThreads returns n threads, always the same: those of the key vectors, and of generated ids.
func oddThreads(t *testing.T, n int) []thread {
	t.Helper()
	var vectors struct {
		Keys []struct{ Parts []string }
	}
	if err := json.Unmarshal(schemas.KeyVectors, &vectors); err != nil {
		t.Fatal(err)
	}
	var out []thread
	seen := map[thread]bool{}
	add := func(tenant, id string) {
		if x := (thread{tenant, id}); !seen[x] && record.ValidateID(id) == nil {
			seen[x] = true
			out = append(out, x)
		}
	}
	for _, v := range vectors.Keys {
		if len(v.Parts) == 2 {
			add(v.Parts[0], v.Parts[1])
		}
	}
	if len(out) < 10 {
		t.Fatalf("%d vectors have a tenant and a thread", len(out))
	}
	for _, w := range words {
		add("acme", w)
		add(w, "thread")
	}
	r := rand.New(rand.NewPCG(19, 84))
	for len(out) < n {
		tenant := "acme"
		if r.IntN(4) == 0 {
			tenant = oddID(r)
		}
		if record.ValidateID(tenant) == nil {
			add(tenant, oddID(r))
		}
	}
	return out
}

// oddID makes up an id of one alphabet or of all, of any length, and every eighth of 512 bytes.
func oddID(r *rand.Rand) string {
	length := 1 + r.IntN(40)
	if r.IntN(8) == 0 {
		length = record.MaxIDBytes
	}
	one := alphabets[r.IntN(len(alphabets))]
	mixed := r.IntN(2) == 0
	var b strings.Builder
	for {
		alphabet := one
		if mixed {
			alphabet = alphabets[r.IntN(len(alphabets))]
		}
		runes := []rune(alphabet)
		c := runes[r.IntN(len(runes))]
		if b.Len()+utf8.RuneLen(c) > length {
			break
		}
		b.WriteRune(c)
	}
	for b.Len() < length && length == record.MaxIDBytes { // to the byte
		b.WriteByte('x')
	}
	return b.String()
}
