package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/skeinhq/skein/pkg/kafka"
)

// compare drains the same events with two compactors and tells of each key of skein.runs and skein.snapshots whether its last record is the same,
// byte for byte, headers too. It is an error if one differs.
func (b *bench) compare(ctx context.Context, before, after string, stdout io.Writer) error {
	var last [2]map[string][]byte
	for i, program := range []string{before, after} {
		r, err := b.compact(ctx, program, fmt.Sprint("cmp-", b.load.name, i))
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "%s %s %s\n", b.load.name, program, r)
		if last[i], err = b.lastRecords(ctx); err != nil {
			return err
		}
	}
	differ, first := 0, ""
	for _, key := range slices.Sorted(maps.Keys(last[0])) {
		if !bytes.Equal(last[0][key], last[1][key]) {
			if differ++; first == "" {
				first = key
			}
		}
	}
	for key := range last[1] {
		if last[0][key] == nil {
			differ++
		}
	}
	fmt.Fprintf(stdout, "%s: %d keys before, %d after, %d differ\n", b.load.name, len(last[0]), len(last[1]), differ)
	if differ == 0 {
		return nil
	}
	fmt.Fprintf(stdout, "the first: %s\n%s\n", first, difference(last[0][first], last[1][first]))
	return fmt.Errorf("%d keys differ", differ)
}

// lastRecords are headers and value of the last record of each key, by topic and key.
func (b *bench) lastRecords(ctx context.Context) (map[string][]byte, error) {
	last := map[string][]byte{}
	for name, topic := range map[string]string{"runs": b.cfg.Topics().Runs, "snapshots": b.cfg.Topics().Snapshots} {
		spans, err := kafka.Spans(ctx, b.admin, topic)
		if err != nil {
			return nil, err
		}
		for r, err := range kafka.Scan(ctx, b.cfg, topic, spans) {
			if err != nil {
				return nil, err
			}
			var text []byte
			for _, h := range r.Headers {
				text = fmt.Appendf(text, "%s: %s\n", h.Key, h.Value)
			}
			last[name+" "+string(r.Key)] = append(text, r.Value...)
		}
	}
	return last, nil
}

// difference shows both where they begin to differ.
func difference(a, b []byte) string {
	at := 0
	for at < min(len(a), len(b)) && a[at] == b[at] {
		at++
	}
	around := func(text []byte) []byte { return text[max(0, min(at-100, len(text))):min(len(text), at+200)] }
	return fmt.Sprintf("of %d and %d bytes, from byte %d on:\n- %s\n+ %s", len(a), len(b), at, around(a), around(b))
}
