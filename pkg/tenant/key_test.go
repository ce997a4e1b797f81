package tenant_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/tenant"
)

func TestNewKey_HasTheFormThatIsAskedFor(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		k := tenant.NewKey()
		if !tenant.IsKey(k) || len(k) != 46 || seen[k] {
			t.Fatalf("a key is %q", k)
		}
		seen[k] = true
	}
	good := tenant.NewKey()
	for _, bad := range []string{"", "sk_", "password", "sk_password", good[3:], good + "A", good[:45], "SK_" + good[3:], good + "=",
		"sk_" + strings.Repeat("!", 43)} {
		if tenant.IsKey(bad) {
			t.Errorf("%q passes for a key", bad)
		}
	}
}

const sum = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

func TestParseKeys_RefusesTheWholeFile(t *testing.T) {
	entry := "- name: n\n  tenant: t\n  scopes: [read]\n  sha256: " + sum + "\n"
	for name, text := range map[string]string{
		"empty":               "",
		"no list":             "keys:\n",
		"another list":        "key: []\n",
		"not YAML":            "keys: [\n",
		"no map":              "- 1\n",
		"two documents":       "keys: []\n---\nkeys: []\n",
		"a member too many":   "keys:\n" + entry + "  admin: true\n",
		"a member twice":      "keys:\n" + entry + "  tenant: other\n",
		"no name":             "keys:\n" + strings.Replace(entry, "name: n", "name: ''", 1),
		"a name of two lines": "keys:\n" + strings.Replace(entry, "name: n", `name: "a\nb"`, 1),
		"no tenant":           "keys:\n" + strings.Replace(entry, "tenant: t", "tenant: ''", 1),
		"tenant that is dots": "keys:\n" + strings.Replace(entry, "tenant: t", "tenant: ..", 1),
		"no scopes":           "keys:\n" + strings.Replace(entry, "[read]", "[]", 1),
		"unknown scope":       "keys:\n" + strings.Replace(entry, "[read]", "[read, write]", 1),
		"a scope twice":       "keys:\n" + strings.Replace(entry, "[read]", "[read, read]", 1),
		"short hash":          "keys:\n" + strings.Replace(entry, sum, sum[2:], 1),
		"upper-case hash":     "keys:\n" + strings.Replace(entry, sum, strings.ToUpper(sum), 1),
		"no hash":             "keys:\n" + strings.Replace(entry, sum, tenant.NewKey(), 1),
		"a name twice":        "keys:\n" + entry + strings.Replace(entry, "9f", "8f", 1),
		"a hash twice":        "keys:\n" + entry + strings.Replace(entry, "name: n", "name: m", 1),
		"no time":             "keys:\n" + entry + "  expires: tomorrow\n",
		"cut in the middle":   "keys:\n" + entry[:len(entry)-10],
	} {
		t.Run(name, func(t *testing.T) {
			keys, err := tenant.ParseKeys([]byte(text))
			if !errors.Is(err, tenant.ErrKeyFile) || keys != nil || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, %v", keys, err)
			}
			if err != nil && strings.Contains(err.Error(), "sk_") {
				t.Errorf("the error repeats a key: %v", err)
			}
		})
	}
	for _, text := range []string{"keys: []", "keys:\n" + entry,
		"# words\nkeys:\n  " + strings.ReplaceAll(strings.TrimSpace(entry), "\n", "\n  ")} {
		if _, err := tenant.ParseKeys([]byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestAppendKey_KeepsWhatStandsInTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	var want []string
	for _, name := range []string{"first", "yes", `with "quotes": and #`, "7"} {
		end := time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)
		k := tenant.Entry(name, "acme/é", []tenant.Scope{tenant.ScopePublish, tenant.ScopeRead}, tenant.NewKey())
		if name == "yes" {
			k.Expires = &end
		}
		if err := tenant.AppendKey(path, k); err != nil {
			t.Fatal(err)
		}
		want = append(want, name)
		keys, err := tenant.ReadKeys(path)
		if err != nil || len(keys) != len(want) {
			t.Fatalf("%d keys, %v", len(keys), err)
		}
		for i, k := range keys {
			if k.Name != want[i] || k.Tenant != "acme/é" || len(k.Scopes) != 2 || (k.Expires != nil) != (k.Name == "yes") ||
				k.Expires != nil && !k.Expires.Equal(end.Truncate(time.Second)) {
				t.Errorf("key %d is %+v", i, k)
			}
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is made with mode %v, %v", info.Mode(), err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := tenant.AppendKey(path, tenant.Entry("yes", "acme", []tenant.Scope{tenant.ScopeRead}, tenant.NewKey())); err == nil {
		t.Error("a name is taken twice")
	}
	if err := tenant.AppendKey(path, tenant.Entry("new", "..", []tenant.Scope{tenant.ScopeRead}, tenant.NewKey())); err == nil {
		t.Error("a tenant that cannot be is taken")
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("a refusal has changed the file: %v", err)
	}
}

func TestAppendKey_FollowsTheFormOfTheFileOrRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	entry := "- name: n # a comment\n  tenant: t\n  scopes: [read]\n  sha256: " + sum
	for text, ok := range map[string]bool{
		"keys:\n" + entry: true,
		"keys:\n    " + strings.ReplaceAll(entry, "\n", "\n    ") + "\n": true,
		"keys: []\n": false,
		"keys: [":    false,
	} {
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		err := tenant.AppendKey(path, tenant.Entry("new", "t", tenant.Scopes(), tenant.NewKey()))
		after, readErr := os.ReadFile(path)
		if readErr != nil {
			t.Fatal(readErr)
		}
		if (err == nil) != ok || !bytes.HasPrefix(after, []byte(text)) {
			t.Errorf("%q: %v; then %q", text, err, after)
		}
		if !ok && string(after) != text {
			t.Errorf("a refusal has changed the file to %q", after)
		}
	}
}

// A key is found whatever stands round it; what is too short for one is none.
func TestHoldsKey_FindsAKeyAnywhere(t *testing.T) {
	key := tenant.NewKey()
	for _, text := range []string{key, "Bearer " + key, "k=" + key + "; a=b", "Basic," + key, `"` + key + `"`, "x" + key + "y", "sk_" + key} {
		if !tenant.HoldsKey(text) {
			t.Errorf("%q holds a key", text)
		}
	}
	for _, text := range []string{"", "sk_", key[:45], key[3:], "sk_ " + key[3:], "sk_live"} {
		if tenant.HoldsKey(text) {
			t.Errorf("%q holds no key", text)
		}
	}
}
