package compact

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"github.com/skeinhq/skein/pkg/agui"
)

// maxCopied bounds what the copy operations of one patch may add, in bytes: a few small patches
// that copy what they copied before would otherwise fill the memory.
const maxCopied = 16 << 20

var patchOptions = &jsonpatch.ApplyOptions{AccumulatedCopySizeLimit: maxCopied}

var errPrototype = errors.New("the path names __proto__ or constructor/prototype, which the client refuses")

// applyPatch applies an RFC 6902 patch as a whole or not at all, as the client does with
// fast-json-patch 3.1.1. Operations on the root are done here, where the library and the client differ.
func applyPatch(doc, patch json.RawMessage) (json.RawMessage, error) {
	var batch []json.RawMessage
	var err error
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		doc, err = applyBatch(doc, batch)
		batch = batch[:0]
		return err
	}
	for op := range agui.Elements(patch) {
		name, path := stringOf(agui.Lookup(op, "op")), stringOf(agui.Lookup(op, "path"))
		if bansPrototype(path) {
			return nil, errPrototype
		}
		if path != "" {
			batch = append(batch, op)
			continue
		}
		if err := flush(); err != nil {
			return nil, err
		}
		if doc, err = rootOperation(doc, name, op); err != nil {
			return nil, err
		}
	}
	if err := flush(); err != nil {
		return nil, err
	}
	return bytes.Clone(doc), nil
}

func applyBatch(doc json.RawMessage, ops []json.RawMessage) (json.RawMessage, error) {
	if !agui.IsObject(doc) && !agui.IsArray(doc) {
		return nil, errors.New("the document holds no members")
	}
	var b bytes.Buffer
	b.WriteByte('[')
	b.Write(bytes.Join(toBytes(ops), []byte{','}))
	b.WriteByte(']')
	p, err := jsonpatch.DecodePatch(b.Bytes())
	if err != nil {
		return nil, fmt.Errorf("decoding patch: %w", err)
	}
	out, err := p.ApplyWithOptions(doc, patchOptions)
	if err != nil {
		return nil, fmt.Errorf("applying patch: %w", err)
	}
	return out, nil
}

func toBytes(ops []json.RawMessage) [][]byte {
	out := make([][]byte, len(ops))
	for i, op := range ops {
		out[i] = op
	}
	return out
}

func rootOperation(doc json.RawMessage, name string, op json.RawMessage) (json.RawMessage, error) {
	switch name {
	case "add", "replace":
		return agui.Lookup(op, "value"), nil
	case "remove":
		return json.RawMessage(`null`), nil
	case "test":
		if !jsonpatch.Equal(doc, agui.Lookup(op, "value")) {
			return nil, errors.New("testing the root: the values differ")
		}
		return doc, nil
	case "move", "copy":
		from := stringOf(agui.Lookup(op, "from"))
		if from == "" {
			return doc, nil
		}
		return valueAt(doc, from)
	}
	return nil, fmt.Errorf("applying patch: unknown operation %q", name)
}

var unescapePointer = strings.NewReplacer("~1", "/", "~0", "~")

// valueAt follows a JSON pointer (RFC 6901).
func valueAt(doc json.RawMessage, pointer string) (json.RawMessage, error) {
	for _, part := range strings.Split(pointer, "/")[1:] {
		part = unescapePointer.Replace(part)
		var next json.RawMessage
		if agui.IsObject(doc) {
			next = agui.Lookup(doc, part)
		} else {
			i := 0
			for e := range agui.Elements(doc) {
				if part == fmt.Sprint(i) {
					next = e
				}
				i++
			}
		}
		if next == nil {
			return nil, fmt.Errorf("following %s: there is nothing", pointer)
		}
		doc = next
	}
	return doc, nil
}

func bansPrototype(path string) bool {
	if !strings.Contains(path, "proto") {
		return false
	}
	parts := strings.Split(path, "/")
	for i, p := range parts {
		if p == "__proto__" || (p == "prototype" && i > 0 && parts[i-1] == "constructor") {
			return true
		}
	}
	return false
}
