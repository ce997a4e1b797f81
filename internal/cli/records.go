package cli

import (
	"cmp"
	"fmt"
	"time"

	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compactor/partition"
	"github.com/skeinhq/skein/pkg/record"
)

// printRecords prints the run records that the compactor would write, using the compactor's own code. The same files always
// give the same records: events without a timestamp get a time in 1970, not the current time.
func printRecords(out *output, runs []chainRun, kept agui.Families) error {
	cfg := partition.DefaultConfig()
	cfg.KeepEvents = kept
	var sources []partition.Source // the records on skein.events that the runs would have
	var where []string             // the file and line of each record
	thread := ""
	for i, run := range runs {
		ofThread, _, _ := run.ids()
		thread = cmp.Or(thread, ofThread)
		id := run.id(i)
		add := func(kind record.Kind, value []byte, at string) {
			sources = append(sources, partition.Source{
				Headers: record.Headers{Version: record.Version, Kind: kind, RunID: id, Seq: -1},
				Value:   value, At: time.UnixMilli(0).UTC(),
			})
			where = append(where, at)
		}
		if run.input != nil {
			add(record.KindInput, run.input, "input of run "+id)
		}
		for _, e := range run.events {
			add(record.KindEvent, e.text, e.where)
		}
	}
	records, refused, err := partition.Offline(cfg, dev.Tenant, cmp.Or(thread, "thread"), sources)
	if err != nil {
		return err
	}
	for _, r := range refused {
		out.note("%s: left out: %s %s", where[r.Source], r.Reason, r.Detail)
	}
	for _, r := range records {
		b, err := record.EncodeRun(r)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out.stdout, "%s\n", b); err != nil {
			return err
		}
	}
	return nil
}
