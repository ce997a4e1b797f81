package kafka_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

func TestConfig_RefusesSecurityThatCannotWork(t *testing.T) {
	for name, c := range map[string]struct {
		s    kafka.Security
		want string
	}{
		"a CA without TLS":           {kafka.Security{CAFile: "ca.pem"}, "ask for TLS too"},
		"a server name without TLS":  {kafka.Security{ServerName: "kafka"}, "ask for TLS too"},
		"a certificate without key":  {kafka.Security{TLS: true, CertFile: "c.pem"}, "both or none"},
		"a key without certificate":  {kafka.Security{TLS: true, KeyFile: "k.pem"}, "both or none"},
		"a user without mechanism":   {kafka.Security{User: "u"}, "say which"},
		"a mechanism of another day": {kafka.Security{SASL: "GSSAPI", User: "u", PasswordFile: "p"}, "is not one of PLAIN"},
		"a mechanism without user":   {kafka.Security{SASL: "PLAIN", PasswordFile: "p"}, "needs a user"},
		"a user without password":    {kafka.Security{SASL: "PLAIN", User: "u"}, "needs a user"},
	} {
		t.Run(name, func(t *testing.T) {
			err := kafka.Config{Brokers: []string{"b:1"}, Security: c.s}.Validate()
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want one with %q", err, c.want)
			}
		})
	}
}

// Connections that are open do not read the files, so readiness does.
func TestSecurity_ChecksItsFiles(t *testing.T) {
	dir := t.TempDir()
	s := kafka.Security{TLS: true, CAFile: filepath.Join(dir, "ca"), SASL: "PLAIN", User: "u", PasswordFile: filepath.Join(dir, "password")}
	check := func(want string) {
		t.Helper()
		if err := s.CheckFiles(); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	check("reading the CA of Kafka")
	put(t, s.CAFile, "none")
	check("has no PEM certificate")
	put(t, s.CAFile, anotherCA(t))
	check("reading the password of Kafka")
	put(t, s.PasswordFile, "secret")
	check("<nil>")
	s.CertFile, s.KeyFile = s.CAFile, s.PasswordFile
	check("reading the certificate for Kafka")
}

// Every way to log in, through every kind of client, on Apache Kafka.
func TestSecurity_RealKafkaLetsIn(t *testing.T) {
	c := kafkatest.Secured(t)
	with := func(mechanism string) kafka.Config {
		cfg := c.Config
		cfg.Security.SASL = mechanism
		return cfg
	}
	for name, cfg := range map[string]kafka.Config{
		"SCRAM-SHA-512": c.Config,
		"SCRAM-SHA-256": with("SCRAM-SHA-256"),
		"PLAIN":         with("PLAIN"),
		"a certificate": c.MutualTLS,
	} {
		t.Run(name, func(t *testing.T) {
			cfg.TopicPrefix = strings.ReplaceAll(strings.ToLower(name), " ", "-") + "."
			if _, err := kafka.EnsureTopics(timeout(t), cfg, kafka.TopicSpec{Partitions: 1}); err != nil {
				t.Fatal(err)
			}
			kafkatest.Produce(t, cfg, &kgo.Record{Topic: cfg.Topics().Events, Value: []byte("in")})
			transact(t, cfg, "out")
			got := kafkatest.Consume(t, cfg, cfg.Topics().Runs)
			if len(got) != 1 || string(got[0].Value) != "out" {
				t.Errorf("the transaction left %d records", len(got))
			}
		})
	}
}

// transact answers what is on the events topic with one record on the runs topic, in one transaction.
func transact(t *testing.T, cfg kafka.Config, value string) {
	t.Helper()
	ctx := timeout(t)
	nothing := func(context.Context, *kgo.Client, map[string][]int32) {}
	s, err := kafka.NewCompactorSession(ctx, cfg,
		kafka.CompactorOptions{Group: cfg.TopicPrefix + "g", InstanceID: "one", Hooks: kafka.CompactorHooks{
			OnAssigned: nothing, OnRevoked: nothing, OnLost: nothing,
			AdjustFetchOffsets: func(_ context.Context, m map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
				for _, partitions := range m {
					for p := range partitions {
						partitions[p] = kgo.NewOffset().AtStart()
					}
				}
				return m, nil
			},
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	option := func(of any) time.Duration { return s.Client().OptValue(of).(time.Duration) }
	if open, member := option(kgo.TransactionTimeout), option(kgo.SessionTimeout); open >= member {
		t.Errorf("a dead owner's transaction may stay open for %v, but its partitions move after %v", open, member)
	}
	if err := s.PollFetches(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.Begin(); err != nil {
		t.Fatal(err)
	}
	if err := s.ProduceSync(ctx, &kgo.Record{Topic: cfg.Topics().Runs, Key: []byte("k"), Value: []byte(value)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if done, err := s.End(ctx, kgo.TryCommit); err != nil || !done {
		t.Fatalf("committed %t, %v", done, err)
	}
}

// Whoever may not come in is told why on one line, and comes in by the same client once what is wrong is
// mended.
func TestSecurity_RealKafkaKeepsOutUntilTheFilesAreMended(t *testing.T) {
	c := kafkatest.Secured(t)
	password := c.Config.Security.PasswordFile
	for name, tc := range map[string]struct {
		wrong func(s *kafka.Security, file string) // points a setting to a file, or sets what no file can mend
		with  string                               // what the file holds; "" is none
		good  string                               // the file with what it should hold; "" where no file is wrong
		want  error
		text  string
	}{
		"a wrong password":      {func(s *kafka.Security, f string) { s.PasswordFile = f }, "guess", password, kafka.ErrDenied, "SASL_AUTHENTICATION_FAILED"},
		"a wrong one for PLAIN": {func(s *kafka.Security, f string) { s.SASL, s.PasswordFile = "PLAIN", f }, "guess", password, kafka.ErrDenied, "SASL_AUTHENTICATION_FAILED"},
		"no password yet":       {func(s *kafka.Security, f string) { s.PasswordFile = f }, "", password, fs.ErrNotExist, "reading the password of Kafka"},
		"an empty password":     {func(s *kafka.Security, f string) { s.PasswordFile = f }, "\n", password, nil, "is empty"},
		"an unknown user":       {func(s *kafka.Security, _ string) { s.User = "nobody" }, "", "", kafka.ErrDenied, "SASL_AUTHENTICATION_FAILED"},
		"an unknown authority":  {func(s *kafka.Security, f string) { s.CAFile = f }, anotherCA(t), c.Config.Security.CAFile, kafka.ErrUntrusted, "unknown authority"},
		"no authority":          {func(s *kafka.Security, f string) { s.CAFile = f }, "none", c.Config.Security.CAFile, nil, "has no PEM certificate"},
		"another server's name": {func(s *kafka.Security, _ string) { s.ServerName = "kafka.example" }, "", "", kafka.ErrUntrusted,
			"kafka.example"},
		"no TLS":             {func(s *kafka.Security, _ string) { *s = kafka.Security{} }, "", "", nil, "TLS"},
		"no password by TLS": {func(s *kafka.Security, _ string) { s.SASL, s.User, s.PasswordFile = "", "", "" }, "", "", nil, "SASL"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := c.Config
			file := filepath.Join(t.TempDir(), "file")
			tc.wrong(&cfg.Security, file)
			if tc.with != "" {
				put(t, file, tc.with)
			}
			probe, err := kafka.NewProbe(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer probe.Close()
			err = probe.Ping(timeout(t))
			switch {
			case err == nil:
				t.Fatal("it was let in")
			case tc.want != nil && !errors.Is(err, tc.want), !strings.Contains(err.Error(), tc.text), strings.Contains(err.Error(), "\n"),
				strings.Contains(err.Error(), "guess"):
				t.Errorf("%q, want one line of %v with %q", err, tc.want, tc.text)
			}
			if tc.good == "" {
				return
			}
			text, err := os.ReadFile(tc.good)
			if err != nil {
				t.Fatal(err)
			}
			put(t, file, string(text))
			if err := probe.Ping(timeout(t)); err != nil {
				t.Errorf("with the file mended: %v", err)
			}
		})
	}
}

func put(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// anotherCA is the certificate of an authority that has vouched for nobody here.
func anotherCA(t *testing.T) string {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

func TestSecurity_SaysThatAListenerAsksForNoLogin(t *testing.T) {
	cfg := kafkatest.Real(t, 1).Config
	cfg.Security = kafka.Security{SASL: "PLAIN", User: "u", PasswordFile: filepath.Join(t.TempDir(), "password")}
	put(t, cfg.Security.PasswordFile, "p")
	probe, err := kafka.NewProbe(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Close()
	if err := probe.Ping(timeout(t)); !errors.Is(err, kafka.ErrDenied) || !strings.Contains(err.Error(), "asks for no login") {
		t.Errorf("got %v", err)
	}
}
