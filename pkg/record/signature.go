package record

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"strings"
	"sync"
)

// HeaderMAC is ingest's signature of a record of skein.events: the first 16 bytes, in base64url, of an HMAC-SHA-256 over the record's key,
// the headers that SaidByProducer names, in their order, and the value, each behind its length. It holds for no other key, so a copy under
// the key of another tenant or thread has no right signature. A copy under the same key has.
const HeaderMAC = "skein-mac"

// macBytes are those of the HMAC, macText those of the header.
const macBytes, macText = 16, 22

// Signature is what is known of a record's HeaderMAC.
type Signature uint8

const (
	// SignatureNone: there is no signature, and no keys to require one.
	SignatureNone Signature = iota
	// SignatureUnknown: there is one, and no keys to check it.
	SignatureUnknown
	// SignatureWrong: there is none, or none by one of the keys.
	SignatureWrong
	// SignatureRight: it is by one of the keys.
	SignatureRight
)

// SigningKeys make and check signatures. The first key signs, and every key checks. They are safe for concurrent use.
type SigningKeys []*signingKey

// signingKey has hashes with the key, to be used again.
type signingKey struct{ free sync.Pool }

type signing struct {
	hash hash.Hash
	text []byte
	sum  []byte
}

// The limits of a file of keys. A key is used as it is written, so the shortest one has 128 bits in hexadecimal.
const (
	maxSigningKeys = 8
	minSigningKey  = 32
	maxSigningKey  = 1024
)

// ParseSigningKeys reads keys, one a line. Errors do not contain them.
func ParseSigningKeys(text []byte) (SigningKeys, error) {
	var keys SigningKeys
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		key := strings.TrimSpace(line)
		switch {
		case key == "":
			continue
		case len(key) < minSigningKey || len(key) > maxSigningKey:
			return nil, fmt.Errorf("key %d has %d characters: write %d to %d, such as openssl rand -hex 32 prints",
				len(keys)+1, len(key), minSigningKey, maxSigningKey)
		case seen[key]:
			return nil, fmt.Errorf("key %d is there twice: leave one out", len(keys)+1)
		case len(keys) == maxSigningKeys:
			return nil, fmt.Errorf("there are more than %d keys: leave out the oldest", maxSigningKeys)
		}
		seen[key] = true
		k := &signingKey{}
		k.free.New = func() any { return &signing{hash: hmac.New(sha256.New, []byte(key))} }
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, errors.New("there is no key: write one a line, such as openssl rand -hex 32 prints")
	}
	return keys, nil
}

// Sign returns the value of HeaderMAC by the first key.
func Sign[H AnyHeader](keys SigningKeys, key []byte, headers []H, value []byte) []byte {
	k := keys[0]
	s := k.free.Get().(*signing)
	defer k.free.Put(s)
	return append([]byte(nil), signed(s, key, headers, value)...)
}

// CheckSignature returns SignatureRight if one of the keys has signed the record, else SignatureWrong. Without keys, it only reports
// whether there is a signature.
func CheckSignature[H AnyHeader](keys SigningKeys, key []byte, headers []H, value []byte) Signature {
	var mac []byte
	for i := len(headers) - 1; i >= 0 && mac == nil; i-- { // ingest writes it last
		if h := Header(headers[i]); h.Key == HeaderMAC && len(h.Value) == macText {
			mac = h.Value
		}
	}
	switch {
	case keys == nil && mac == nil:
		return SignatureNone
	case keys == nil:
		return SignatureUnknown
	case mac == nil:
		return SignatureWrong
	}
	for _, k := range keys {
		s := k.free.Get().(*signing)
		right := hmac.Equal(mac, signed(s, key, headers, value))
		k.free.Put(s)
		if right {
			return SignatureRight
		}
	}
	return SignatureWrong
}

// signed returns a signature, which is valid until s is used again.
func signed[H AnyHeader](s *signing, key []byte, headers []H, value []byte) []byte {
	s.hash.Reset()
	text := append(binary.AppendUvarint(s.text[:0], uint64(len(key))), key...)
	for _, h := range headers {
		if h := Header(h); SaidByProducer(h.Key) {
			text = append(binary.AppendUvarint(text, uint64(len(h.Key))), h.Key...)
			text = append(binary.AppendUvarint(text, uint64(len(h.Value))), h.Value...)
		}
	}
	s.text = binary.AppendUvarint(text, uint64(len(value)))
	_, _ = s.hash.Write(s.text) // hashes return no errors
	_, _ = s.hash.Write(value)
	s.sum = s.hash.Sum(s.sum[:0])
	s.text = base64.RawURLEncoding.AppendEncode(s.text[:0], s.sum[:macBytes])
	return s.text
}
