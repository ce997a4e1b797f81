package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// The record codec drops white space between JSON tokens. JSON that is compared with a record's JSON, or kept in memory instead of it, must
// have no white space either: otherwise a record would depend on whether its run went through a checkpoint.

// Compacted returns JSON without white space between tokens: v itself if there is none. It does not check v.
func Compacted(v json.RawMessage) json.RawMessage {
	for i := 0; i < len(v); i++ {
		switch v[i] {
		case '"':
			i = stringEnd(v, i)
		case ' ', '\n', '\r', '\t':
			var b bytes.Buffer
			if err := json.Compact(&b, v); err != nil {
				return v // not JSON: it stays as it is
			}
			return b.Bytes()
		}
	}
	return v
}

// stringEnd returns the index of the quote that ends the string which begins at i, or len(v).
func stringEnd(v []byte, i int) int {
	for {
		n := bytes.IndexByte(v[i+1:], '"')
		if n < 0 {
			return len(v)
		}
		end := i + 1 + n
		escapes := 0
		for v[end-1-escapes] == '\\' {
			escapes++
		}
		if i = end; escapes%2 == 0 {
			return end
		}
	}
}

// SHA256 returns the hash of b in hexadecimal, as records hold it.
func SHA256(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
