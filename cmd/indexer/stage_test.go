package main

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/skeinhq/skein/internal/app/apptest"
	"github.com/skeinhq/skein/pkg/kafka"
)

func TestStage_Help(t *testing.T) { apptest.Help(t, stage()) }

func TestStage_OneClearLineForWhatCannotWork(t *testing.T) {
	for want, args := range map[string]string{
		"indexer: a block's delay of 0s":  "--sqlite x --max-delay 0s",
		"indexer: a block's delay of 31s": "--sqlite x --max-delay 31s",
		"--max-delay must be at least 500ms with ClickHouse, which merges the parts of each block, not 499ms": "--clickhouse http://a --max-delay 499ms",
		`reading retention "acme": want TENANT=DAYS`:                                                          "--sqlite x --retain acme",
		"pass --clickhouse URL": "",
	} {
		apptest.Refuses(t, stage(), want, "--brokers 127.0.0.1:1 "+args)
	}
}

func TestStage_GathersRecordsForHalfASecondUnlessTheStoreIsSQLite(t *testing.T) {
	for _, tc := range []struct {
		args string
		want time.Duration
	}{
		{"--clickhouse http://127.0.0.1:8123", 500 * time.Millisecond},
		{"--sqlite x", 100 * time.Millisecond},
		{"--clickhouse http://127.0.0.1:8123 --max-delay 3s", 3 * time.Second},
		{"--sqlite x --max-delay 300ms", 300 * time.Millisecond},
		{"--sqlite x --max-delay 1s", time.Second},
	} {
		var s settings
		f := pflag.NewFlagSet("indexer", pflag.ContinueOnError)
		s.add(f)
		if err := f.Parse(strings.Fields(tc.args)); err != nil {
			t.Fatal(err)
		}
		if got := s.config(kafka.Config{}).MaxDelay; got != tc.want {
			t.Errorf("%s: gathers for %v, want %v", tc.args, got, tc.want)
		}
	}
}
