package tenant

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/skeinhq/skein/internal/reload"
	"github.com/skeinhq/skein/pkg/record"
)

const (
	// keyPrefix lets people and secret scanners recognise keys.
	keyPrefix = "sk_"
	keyBytes  = 32
)

// NewKey returns a key: "sk_" and 256 random bits. Whoever has the key acts as its tenant. Skein does not store it.
func NewKey() string {
	b := make([]byte, keyBytes)
	_, _ = rand.Read(b) // never fails: it crashes the program instead
	return keyPrefix + base64.RawURLEncoding.EncodeToString(b)
}

// IsKey reports whether a text has the form of a key.
func IsKey(text string) bool {
	rest, ok := strings.CutPrefix(text, keyPrefix)
	b, err := base64.RawURLEncoding.Strict().DecodeString(rest)
	return ok && err == nil && len(b) == keyBytes
}

var keyForm = regexp.MustCompile(keyPrefix + `[A-Za-z0-9_-]{43}`) // 256 bits

// HoldsKey reports whether a text contains a substring with the form of a key.
func HoldsKey(text string) bool { return keyForm.MatchString(text) }

// digest returns the SHA-256 of a whole key, "sk_" included. Key files store it in place of the key. Passwords need a slow, salted
// hash because they can be guessed; 256 random bits cannot, and no table of their hashes is possible. With a fast hash, every
// request can be checked, so that a revoked key is refused at once. IsKey ensures that only keys of 256 bits are hashed.
func digest(key string) [sha256.Size]byte { return sha256.Sum256([]byte(key)) }

// Key is an entry of a key file.
type Key struct {
	// Name identifies the key for people. It is unique in the file and not secret.
	Name   string  `yaml:"name" json:"name"`
	Tenant string  `yaml:"tenant" json:"tenant"`
	Scopes []Scope `yaml:"scopes,flow" json:"scopes"`
	// SHA256 is the digest of the key, in lower-case hex digits.
	SHA256 string `yaml:"sha256" json:"sha256"`
	// Expires is when the key stops being valid; nil is never.
	Expires *time.Time `yaml:"expires,omitempty" json:"expires,omitempty"`
}

// Entry returns the entry of a new key.
func Entry(name, tenant string, scopes []Scope, key string) Key {
	sum := digest(key)
	return Key{Name: name, Tenant: tenant, Scopes: scopes, SHA256: hex.EncodeToString(sum[:])}
}

// ErrKeyFile means that a key file is invalid.
var ErrKeyFile = errors.New("not a file of API keys")

// ParseKeys parses a key file. It refuses the whole file if a member is unknown, repeated or missing, because a partly understood
// file could admit the wrong callers.
func ParseKeys(text []byte) ([]Key, error) {
	var file struct {
		Keys *[]Key `yaml:"keys"`
	}
	if err := reload.YAML(text, &file); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKeyFile, err)
	}
	if file.Keys == nil {
		return nil, fmt.Errorf("%w: it has no list of keys; one that lets nobody in is keys: []", ErrKeyFile)
	}
	names, sums := make(map[string]bool), make(map[string]bool)
	for i, k := range *file.Keys {
		if err := k.check(); err != nil {
			return nil, fmt.Errorf("%w: key %d: %w", ErrKeyFile, i+1, err)
		}
		if names[k.Name] || sums[k.SHA256] {
			return nil, fmt.Errorf("%w: key %d: its name or its sha256 is that of an earlier one", ErrKeyFile, i+1)
		}
		names[k.Name], sums[k.SHA256] = true, true
	}
	return *file.Keys, nil
}

// check returns the first error of an entry. Errors do not contain sha256, because its value may be a key by mistake.
func (k Key) check() error {
	if k.Name == "" || len(k.Name) > 200 || strings.ContainsFunc(k.Name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return errors.New("name must be 1 to 200 bytes that can be printed")
	}
	if err := record.ValidateID(k.Tenant); err != nil {
		return fmt.Errorf("tenant: %w", err)
	}
	if len(k.Scopes) == 0 {
		return errors.New("it has no scopes")
	}
	for i, s := range k.Scopes {
		if !slices.Contains(Scopes(), s) || slices.Contains(k.Scopes[:i], s) {
			return fmt.Errorf("scopes must be some of %v, each once, not %q", Scopes(), s)
		}
	}
	if b, err := hex.DecodeString(k.SHA256); err != nil || len(b) != sha256.Size || strings.ToLower(k.SHA256) != k.SHA256 {
		return errors.New("sha256 must be 64 lower-case hex digits")
	}
	return nil
}

// ReadKeys reads a key file.
func ReadKeys(path string) ([]Key, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading API keys: %w", err)
	}
	keys, err := ParseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("reading API keys of %s: %w", path, err)
	}
	return keys, nil
}

const keyFileHead = `# API keys of Skein. A key itself stands nowhere, only its SHA-256; take an entry away and the
# key is refused a moment later. "skein keys new" adds one.
keys:
`

// AppendKey appends an entry to a key file, or creates the file. It keeps the existing content, owner and mode. It writes with one
// call. A stage that reads meanwhile gets the old file, the new one, or a truncated one, which it refuses.
func AppendKey(path string, k Key) error {
	if err := k.check(); err != nil {
		return fmt.Errorf("adding API key: %w", err)
	}
	if k.Expires != nil {
		second := k.Expires.UTC().Truncate(time.Second)
		k.Expires = &second
	}
	entry, err := yaml.Marshal([]Key{k})
	if err != nil {
		return fmt.Errorf("adding API key: %w", err)
	}
	old, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// Only the owner may read it: a hash is not a key, but the names and tenants of keys are private.
		return appendFile(path, os.O_CREATE|os.O_EXCL, keyFileHead+indented(entry, "  "))
	case err != nil:
		return fmt.Errorf("adding API key: %w", err)
	}
	if _, err := ParseKeys(old); err != nil {
		return fmt.Errorf("adding API key to %s: %w", path, err)
	}
	for _, indent := range []string{"  ", "", "    "} {
		more := indented(entry, indent)
		if !bytes.HasSuffix(old, []byte("\n")) {
			more = "\n" + more
		}
		keys, err := ParseKeys(append(slices.Clip(old), more...))
		if err == nil && reflect.DeepEqual(keys[len(keys)-1], k) {
			return appendFile(path, 0, more)
		}
	}
	return fmt.Errorf("adding API key to %s: the name is taken, or the list is not the end of the file in YAML's block form "+
		"(each entry behind \"- \" on lines of its own)", path)
}

func indented(entry []byte, indent string) string {
	return indent + strings.ReplaceAll(strings.TrimSpace(string(entry)), "\n", "\n"+indent) + "\n"
}

func appendFile(path string, flag int, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|flag, 0o600)
	if err != nil {
		return fmt.Errorf("adding API key: %w", err)
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("writing API keys: %w", err)
	}
	return nil
}
