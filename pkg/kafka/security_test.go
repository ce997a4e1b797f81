package kafka_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

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
		"a mechanism of another day": {kafka.Security{SASL: "DIGEST-MD5", User: "u", PasswordFile: "p"}, "is not one of PLAIN"},
		"Kerberos":                   {kafka.Security{SASL: "GSSAPI"}, "Kerberos (GSSAPI) is not offered: have the brokers"},
		"a mechanism without user":   {kafka.Security{SASL: "PLAIN", PasswordFile: "p"}, "needs a user"},
		"a user without password":    {kafka.Security{SASL: "PLAIN", User: "u"}, "needs a user"},
		"OAuth without mechanism":    {kafka.Security{OAuth: kafka.OAuth{TokenFile: "t"}}, "is not OAUTHBEARER"},
		"no token":                   {kafka.Security{SASL: "OAUTHBEARER"}, "give one of them"},
		"two tokens":                 {bearer(kafka.OAuth{TokenFile: "t", URL: "https://id"}), "give one of them"},
		"a file with a scope":        {kafka.Security{SASL: "OAUTHBEARER", OAuth: kafka.OAuth{TokenFile: "t", Scope: "s"}}, "goes with a token"},
		"a secret in plain text":     {bearer(kafka.OAuth{URL: "http://id.example/token"}), "give an https:// URL"},
		"a host alone":               {bearer(kafka.OAuth{URL: "id.example/token"}), "is not https://HOST/PATH"},
		"no client":                  {kafka.Security{SASL: "OAUTHBEARER", OAuth: kafka.OAuth{URL: "https://id"}}, "client id"},
		"half an extension":          {bearer(kafka.OAuth{URL: "https://id", Extensions: "a=b,c"}), `extension "c" is not KEY=VALUE`},
		"AWS in plain text":          {kafka.Security{SASL: "AWS_MSK_IAM"}, "port 9098"},
		"AWS with a user":            {kafka.Security{SASL: "AWS_MSK_IAM", TLS: true, User: "u"}, "takes no user"},
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
	s = kafka.Security{SASL: "OAUTHBEARER", OAuth: kafka.OAuth{TokenFile: filepath.Join(t.TempDir(), "token")}}
	check("reading the token for Kafka")
	put(t, s.OAuth.TokenFile, "opaque")
	check("<nil>")
	put(t, s.OAuth.TokenFile, "eyJhbGciOiJFUzI1NiJ9.eyJleHAiOjF9.c2ln\n")
	check("it expired at 1970-01-01T00:00:01Z: see to what renews")
}

func bearer(o kafka.OAuth) kafka.Security {
	return kafka.Security{SASL: "OAUTHBEARER", User: "u", PasswordFile: "p", OAuth: o}
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
		"a token":       withToken(t, c, c.Issuer.Token(t, time.Hour, nil)),
		"a client": withEndpoint(t, c, func(w http.ResponseWriter, r *http.Request) {
			if id, secret, _ := r.BasicAuth(); id != "skein" || secret != "sesame" || r.PostFormValue("scope") != "a b" {
				t.Errorf("the endpoint was asked with %v by %s", r.PostForm, id)
			}
			giveToken(w, c.Issuer.Token(t, time.Hour, nil), time.Hour)
		}),
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
	const lifetime = 6 * time.Second
	t.Run("renewed under load", func(t *testing.T) {
		t.Run("a client", func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			renewsUnderLoad(t, lifetime, withEndpoint(t, c, func(w http.ResponseWriter, _ *http.Request) {
				asked.Add(1)
				giveToken(w, c.Issuer.Token(t, lifetime, nil), lifetime)
			}))
			if n := asked.Load(); n < 3 || n > 4 {
				t.Errorf("%d tokens in two lifetimes, want one for all clients at a time", n)
			}
		})
		t.Run("a token", func(t *testing.T) {
			t.Parallel()
			cfg := withToken(t, c, c.Issuer.Token(t, lifetime, nil))
			file := cfg.Security.OAuth.TokenFile
			ctx, stop := context.WithCancel(t.Context())
			var renewal sync.WaitGroup
			defer renewal.Wait()
			defer stop()
			renewal.Go(func() {
				for tick := time.NewTicker(lifetime / 3); ; {
					select {
					case <-tick.C:
					case <-ctx.Done():
						return
					}
					token := []byte(c.Issuer.Token(t, lifetime, nil))
					if err := errors.Join(os.WriteFile(file+".new", token, 0o600), os.Rename(file+".new", file)); err != nil {
						t.Error(err)
					}
				}
			})
			renewsUnderLoad(t, lifetime, cfg)
		})
	})
}

// withToken logs in with a token from a file.
func withToken(t *testing.T, c *kafkatest.SecuredCluster, token string) kafka.Config {
	t.Helper()
	cfg := c.OAuth
	cfg.Security.OAuth.TokenFile = filepath.Join(t.TempDir(), "token")
	put(t, cfg.Security.OAuth.TokenFile, token+"\n")
	return cfg
}

// withEndpoint logs in with tokens from an endpoint. Requests ask for the scopes a and b.
func withEndpoint(t *testing.T, c *kafkatest.SecuredCluster, answer http.HandlerFunc) kafka.Config {
	t.Helper()
	s := httptest.NewTLSServer(answer)
	t.Cleanup(s.Close)
	cfg, dir := c.OAuth, t.TempDir()
	cfg.Security.User, cfg.Security.PasswordFile = "skein", filepath.Join(dir, "secret")
	cfg.Security.OAuth = kafka.OAuth{URL: s.URL + "/token", Scope: "a b", CAFile: filepath.Join(dir, "ca.pem"),
		Extensions: "pool=one,tier=two"}
	put(t, cfg.Security.PasswordFile, "sesame")
	put(t, cfg.Security.OAuth.CAFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	return cfg
}

func giveToken(w http.ResponseWriter, token string, lifetime time.Duration) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":%d}`, token, int(lifetime.Seconds()))
}

// renewsUnderLoad shows over two lifetimes of a token that clients log in anew before the brokers end a session with it: on the same
// connections, and without losing a record or an order.
func renewsUnderLoad(t *testing.T, lifetime time.Duration, cfg kafka.Config) {
	t.Helper()
	var lost atomic.Int32
	cfg.TopicPrefix = strings.ReplaceAll(strings.ToLower(t.Name()), "/", "-") + "."
	if _, err := kafka.EnsureTopics(timeout(t), cfg, kafka.TopicSpec{Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	cfg.Options = func() []kgo.Opt { return []kgo.Opt{kgo.WithHooks(disconnects{&lost})} }
	topic := cfg.Topics().Events
	producer, err := kafka.NewProducer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	reader, err := kafka.NewDirectReader(cfg, topic, map[int32]int64{0: kafka.Earliest})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	ctx, sent, failed := timeout(t), 0, atomic.Int32{}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < 2*lifetime; <-tick.C {
		producer.Produce(ctx, &kgo.Record{Topic: topic, Value: strconv.AppendInt(nil, int64(sent), 10)}, func(_ *kgo.Record, err error) {
			if err != nil && failed.Add(1) == 1 {
				t.Errorf("a record is lost: %v", err)
			}
		})
		sent++
	}
	if err := producer.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	for read := 0; read < sent; {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("after %d of %d records: %v", read, sent, err)
		}
		for _, r := range fetches.Records() {
			if string(r.Value) != strconv.Itoa(read) {
				t.Fatalf("record %d is %s", read, r.Value)
			}
			read++
		}
	}
	// A busy machine may lose a connection. Were sessions not renewed, each of the clients would lose its own in each lifetime.
	if lost.Load() > 1 {
		t.Errorf("%d lost connections, want none", lost.Load())
	}
	t.Logf("%d records", sent)
}

// disconnects counts connections that end.
type disconnects struct{ n *atomic.Int32 }

func (d disconnects) OnBrokerDisconnect(kgo.BrokerMetadata, net.Conn) { d.n.Add(1) }

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
			good := ""
			if tc.good != "" {
				text, err := os.ReadFile(tc.good)
				if err != nil {
					t.Fatal(err)
				}
				good = string(text)
			}
			keptOut(t, cfg, file, tc.with, good, tc.want, tc.text)
		})
	}

	token := func(claim string, value any) string {
		return c.Issuer.Token(t, time.Hour, map[string]any{claim: value})
	}
	for name, tc := range map[string]struct {
		with string
		want error
		text string
	}{
		"no token yet":                     {"", fs.ErrNotExist, "reading the OAuth token"},
		"a token for another audience":     {token("aud", "billing"), kafka.ErrDenied, `it is for audience ["billing"], from issuer "https://id.test"`},
		"a token of another issuer":        {token("iss", "https://other"), kafka.ErrDenied, `from issuer "https://other"`},
		"a token that expired":             {token("exp", time.Now().Add(-time.Minute).Unix()), kafka.ErrDenied, "see to what renews "},
		"a token of a clock that is ahead": {token("nbf", time.Now().Add(time.Minute).Unix()), kafka.ErrDenied, "it becomes valid in "},
		"no JSON Web Token":                {"guess", kafka.ErrDenied, "not a JSON Web Token"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := c.OAuth
			cfg.Security.OAuth.TokenFile = filepath.Join(t.TempDir(), "token")
			keptOut(t, cfg, cfg.Security.OAuth.TokenFile, tc.with, c.Issuer.Token(t, time.Hour, nil), tc.want, tc.text)
		})
	}
	t.Run("a page for a token", func(t *testing.T) {
		var mended atomic.Bool
		cfg := withEndpoint(t, c, func(w http.ResponseWriter, _ *http.Request) {
			if mended.Load() {
				giveToken(w, c.Issuer.Token(t, time.Hour, nil), time.Hour)
				return
			}
			_, _ = io.WriteString(w, "<html>Log in")
		})
		probe, err := kafka.NewProbe(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer probe.Close()
		if err := probe.Ping(timeout(t)); err == nil || !strings.Contains(err.Error(), "the answer is not a token in JSON") {
			t.Errorf("it says %v", err)
		}
		mended.Store(true)
		time.Sleep(2 * time.Second) // so long the endpoint is left alone after an error
		if err := probe.Ping(timeout(t)); err != nil {
			t.Errorf("with the endpoint mended: %v", err)
		}
	})
}

// keptOut expects an error with a text while a file holds what is wrong, and none once it holds good. The file does not exist if
// wrong is empty. Nothing mends it if good is.
func keptOut(t *testing.T, cfg kafka.Config, file, wrong, good string, want error, text string) {
	t.Helper()
	if wrong != "" {
		put(t, file, wrong)
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
	case want != nil && !errors.Is(err, want), !strings.Contains(err.Error(), text), strings.Contains(err.Error(), "\n"),
		strings.Contains(err.Error(), "guess"):
		t.Errorf("%q, want one line of %v with %q", err, want, text)
	}
	if good == "" {
		return
	}
	put(t, file, good)
	if err := probe.Ping(timeout(t)); err != nil {
		t.Errorf("with the file mended: %v", err)
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

// Readiness looks for less than a second, and says nevertheless for what a login waits.
func TestProbe_SaysThatItWaitsForAToken(t *testing.T) {
	t.Parallel()
	c := kafkatest.StartCluster(t, 1)
	c.Fake.ControlKey(int16(kmsg.SASLHandshake), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.Fake.KeepControl()
		return r.ResponseKind(), nil, true
	})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer s.Close()
	cfg := c.Config
	cfg.Security = bearer(kafka.OAuth{URL: s.URL})
	cfg.Security.PasswordFile = filepath.Join(t.TempDir(), "secret")
	put(t, cfg.Security.PasswordFile, "sesame")
	probe, err := kafka.NewProbe(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Close()
	for _, want := range []string{"waiting for a token from " + s.URL, "asking " + s.URL + " for a token: no answer within 5s"} {
		for deadline := time.Now().Add(kafkatest.Timeout); ; {
			ctx, cancel := context.WithTimeout(t.Context(), 800*time.Millisecond)
			began := time.Now()
			ping := probe.Ping(ctx)
			_, topics := probe.TopicSet(ctx)
			took := time.Since(began)
			cancel()
			if took > 3*time.Second || ping == nil || topics == nil {
				t.Fatalf("after %v: %v; %v", took, ping, topics)
			}
			if strings.Contains(ping.Error(), want) && strings.Contains(topics.Error(), want) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("they say %v; %v", ping, topics)
			}
		}
	}
}
