package kafka_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/reload"
	"github.com/skeinhq/skein/pkg/kafka"
)

// Keys change without a gap: what either file signs is right while both hold both keys. A broken file changes nothing and is told.
func TestIngestKeys_AreReloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := strings.Repeat("1", 32), strings.Repeat("2", 32)
		path := filepath.Join(t.TempDir(), "keys")
		write := func(lines ...string) {
			t.Helper()
			if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var log bytes.Buffer
		reg := prometheus.NewRegistry()
		write(first)
		keys, err := kafka.OpenIngestKeys(path, slog.New(slog.NewTextHandler(&log, nil)), reg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = keys.Run(ctx) }()
		signed := func() *kgo.Record {
			m := &kgo.Record{Key: []byte("acme/t"), Value: []byte("{}"), Headers: make([]kgo.RecordHeader, 0, 8)}
			keys.Sign(m)
			return m
		}
		byFirst := signed()
		want := func(what string, bySecond bool, refuses ...*kgo.Record) {
			t.Helper()
			time.Sleep(2 * reload.Interval)
			for _, m := range refuses {
				if !keys.Refuses(m) {
					t.Errorf("%s: a record is taken", what)
				}
			}
			if keys.Refuses(signed()) || bytes.Equal(signed().Headers[0].Value, byFirst.Headers[0].Value) == bySecond {
				t.Errorf("%s: it does not sign as it should", what)
			}
		}
		plain := &kgo.Record{Key: []byte("acme/t"), Value: []byte("{}")}
		write(first, second)
		want("the new key checks", false, plain)
		write(second, first)
		if want("the new key signs", true, plain); keys.Refuses(byFirst) {
			t.Error("the old key does not check")
		}
		write("short")
		if want("a broken file", true, plain); keys.Stale() == nil || !strings.Contains(log.String(), "those read before stay in force") {
			t.Errorf("it is told as %v, and logged as %s", keys.Stale(), &log)
		}
		if n, err := testutil.GatherAndCount(reg, "skein_auth_ingest_keys_stale"); n != 1 || err != nil {
			t.Errorf("%d metrics, %v", n, err)
		}
		write(second)
		if want("the old key is gone", true, plain, byFirst); keys.Stale() != nil {
			t.Error(keys.Stale())
		}
	})
	none := filepath.Join(t.TempDir(), "none")
	if _, err := kafka.OpenIngestKeys(none, slog.New(slog.DiscardHandler), prometheus.NewRegistry()); err == nil {
		t.Error("a missing file is no error")
	}
	var nobody *kafka.IngestKeys
	m := &kgo.Record{}
	if nobody.Sign(m); len(m.Headers) != 0 || nobody.Refuses(m) {
		t.Error("without keys, records are signed or refused")
	}
}
