package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/skeinhq/skein/pkg/kafka"
)

// compare drains each load with two compactors, and tells how many keys of skein.runs and skein.snapshots have another last record, byte
// for byte, headers too. It is an error if one has.
func (b *bench) compare(ctx context.Context, loads []load, before, after string, stdout io.Writer) (err error) {
	for _, l := range loads {
		if err := b.fill(ctx, l, ""); err != nil {
			return err
		}
		var last [2]map[string][]byte
		for i, program := range []string{before, after} {
			r, err := b.compact(ctx, program, fmt.Sprint("cmp-", l.name, i))
			if err != nil {
				return err
			}
			fmt.Fprintf(stdout, "%s %s%s\n", l.name, program, r)
			if last[i], err = b.lastRecords(ctx); err != nil {
				return err
			}
		}
		differ := differing(last[0], last[1])
		fmt.Fprintf(stdout, "%s: %d keys before, %d after, %d differ\n", l.name, len(last[0]), len(last[1]), len(differ))
		if len(differ) > 0 {
			first := differ[0]
			fmt.Fprintf(stdout, "the first: %s\n%s\n", first, difference(last[0][first], last[1][first]))
			err = errors.Join(err, fmt.Errorf("%d keys of load %s differ", len(differ), l.name))
		}
	}
	return err
}

// differing are the keys that have another record, or none, in one of the two, in order.
func differing(before, after map[string][]byte) (keys []string) {
	for key, record := range before {
		if other, ok := after[key]; !ok || !bytes.Equal(record, other) {
			keys = append(keys, key)
		}
	}
	for key := range after {
		if _, ok := before[key]; !ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
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
