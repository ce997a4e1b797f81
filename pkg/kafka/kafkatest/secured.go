package kafkatest

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest/apache"
	"github.com/skeinhq/skein/test/parts"
	"github.com/skeinhq/skein/test/parts/partstest"
)

// SecuredCluster is a real Kafka with one node, for one test, that requires authentication. Its Config logs in with
// SCRAM-SHA-512 over TLS.
type SecuredCluster struct {
	*RealCluster
	// MutualTLS connects to the same cluster with a client certificate instead of a password.
	MutualTLS kafka.Config
	// OAuth connects to the same cluster with a token of Issuer. The test adds where it comes from.
	OAuth  kafka.Config
	Issuer *Issuer

	admin kafka.Config // connects without authentication and may do everything
}

// Secured returns a real Kafka that requires TLS and credentials. It always runs from Maven jars, because brokers in
// SKEIN_TEST_BROKERS have other users, and the Docker image configures certificates differently. If there is no real
// Kafka, the test ends as with Real.
func Secured(tb testing.TB) *SecuredCluster {
	tb.Helper()
	return secured(tb, false)
}

// Authorized is Secured with Kafka's own authorizer: users may do only what Allow permits.
func Authorized(tb testing.TB) *SecuredCluster {
	tb.Helper()
	return secured(tb, true)
}

func secured(tb testing.TB, authorizer bool) *SecuredCluster {
	tb.Helper()
	partstest.SkipShort(tb, "a real Kafka")
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	dir := tb.TempDir()
	certs, err := makeCertificates(dir)
	if err != nil {
		tb.Fatal(err)
	}
	issuer, err := newIssuer(filepath.Join(dir, "keys.json"))
	if err != nil {
		tb.Fatal(err)
	}
	const user = "skein"
	password := rand.Text()
	cluster, err := apache.Start(ctx, apache.Options{Nodes: 1, Security: &apache.Security{
		KeystoreFile: certs.brokerFile, CAFile: certs.caFile, User: user, Password: password, Authorizer: authorizer,
		KeysFile: filepath.Join(dir, "keys.json"), Issuer: issuerName, Audience: audience,
	}})
	if missing := new(parts.UnavailableError); errors.As(err, &missing) {
		unavailable(tb, err.Error())
	} else if err != nil {
		tb.Fatalf("starting a real Kafka: %v", err)
	}
	c := &SecuredCluster{
		RealCluster: &RealCluster{tb: tb, nodes: cluster, own: true, Version: cluster.Version()},
		admin:       kafka.Config{ClientID: "test-keeper", Brokers: cluster.Brokers()},
		MutualTLS: kafka.Config{ClientID: "test", Brokers: cluster.Secured(apache.MutualTLS), Security: kafka.Security{
			TLS: true, CAFile: certs.caFile, CertFile: certs.clientFile, KeyFile: certs.clientKeyFile,
		}},
		OAuth: kafka.Config{ClientID: "test", Brokers: cluster.Secured(apache.OAuth), Security: kafka.Security{
			TLS: true, CAFile: certs.caFile, SASL: "OAUTHBEARER",
		}},
		Issuer: issuer,
	}
	tb.Cleanup(c.end)
	tb.Logf("real Kafka, secured: %s", c.Version)
	c.Config = kafka.Config{ClientID: "test", Brokers: cluster.Secured(apache.Login), Security: kafka.Security{
		TLS: true, CAFile: certs.caFile,
		SASL: "SCRAM-SHA-512", User: user, PasswordFile: filepath.Join(dir, "password"),
	}}
	if err := os.WriteFile(c.Config.Security.PasswordFile, []byte(password+"\n"), 0o600); err != nil {
		tb.Fatal(err)
	}
	if _, _, err := identify(ctx, c.admin, 1); err != nil {
		tb.Fatalf("asking Kafka for its version: %v", err)
	}
	c.SetPassword(password)
	return c
}

// SetPassword changes the password of Config's user at the brokers, for both SCRAM mechanisms, and returns when the
// change is in effect. It changes no file. Open connections stay open.
func (c *SecuredCluster) SetPassword(password string) {
	c.tb.Helper()
	c.keep(func(ctx context.Context, adm *kadm.Client) {
		c.tb.Helper()
		for _, mechanism := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} {
			done, err := adm.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{
				{User: c.Config.Security.User, Mechanism: mechanism, Iterations: 4096, Password: password},
			})
			if err == nil {
				err = done.Error()
			}
			if err != nil {
				c.tb.Fatalf("changing the password of %s: %v", c.Config.Security.User, err)
			}
		}
		c.await(ctx, password)
	})
}

// keep calls f with a client that may do everything.
func (c *SecuredCluster) keep(f func(context.Context, *kadm.Client)) {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	adm, err := kafka.NewAdmin(c.admin)
	if err != nil {
		c.tb.Fatal(err)
	}
	defer adm.Close()
	f(ctx, adm)
}

// User creates a user with the password of Config's user and returns a configuration that logs in as the new user.
func (c *SecuredCluster) User(name string) kafka.Config {
	c.tb.Helper()
	password, err := os.ReadFile(c.Config.Security.PasswordFile)
	if err != nil {
		c.tb.Fatal(err)
	}
	as := *c
	as.Config.Security.User = name
	as.SetPassword(strings.TrimSpace(string(password)))
	return as.Config
}

// Keeper returns a configuration that connects to the cluster without credentials and may do everything.
func (c *SecuredCluster) Keeper() kafka.Config { return c.admin }

// Allow grants the rules to a user; Forbid revokes them. Both return when the change is acknowledged.
func (c *SecuredCluster) Allow(user string, rules ...*kadm.ACLBuilder) {
	c.tb.Helper()
	c.rules(func(ctx context.Context, adm *kadm.Client, b *kadm.ACLBuilder) error {
		done, err := adm.CreateACLs(ctx, b.Allow("User:"+user).AllowHosts("*"))
		for _, d := range done {
			err = errors.Join(err, d.Err)
		}
		return err
	}, rules)
}

// Forbid revokes rules that Allow has granted.
func (c *SecuredCluster) Forbid(user string, rules ...*kadm.ACLBuilder) {
	c.tb.Helper()
	c.rules(func(ctx context.Context, adm *kadm.Client, b *kadm.ACLBuilder) error {
		done, err := adm.DeleteACLs(ctx, b.Allow("User:"+user).AllowHosts("*"))
		for _, d := range done {
			if err = errors.Join(err, d.Err); len(d.Deleted) == 0 {
				err = errors.Join(err, errors.New("there is no such rule"))
			}
		}
		return err
	}, rules)
}

func (c *SecuredCluster) rules(f func(context.Context, *kadm.Client, *kadm.ACLBuilder) error, rules []*kadm.ACLBuilder) {
	c.tb.Helper()
	c.keep(func(ctx context.Context, adm *kadm.Client) {
		c.tb.Helper()
		for _, rule := range rules {
			if err := f(ctx, adm, rule); err != nil {
				c.tb.Fatalf("changing what a user may do: %v", err)
			}
		}
	})
}

// await returns when the brokers accept a password. They learn of a change shortly after it is acknowledged.
func (c *SecuredCluster) await(ctx context.Context, password string) {
	c.tb.Helper()
	cfg := c.Config
	cfg.Security.PasswordFile = filepath.Join(c.tb.TempDir(), "password")
	if err := os.WriteFile(cfg.Security.PasswordFile, []byte(password), 0o600); err != nil {
		c.tb.Fatal(err)
	}
	probe, err := kafka.NewProbe(cfg)
	if err != nil {
		c.tb.Fatal(err)
	}
	defer probe.Close()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := probe.Ping(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			c.tb.Fatalf("waiting for a password to be in force: %v", err)
		case <-tick.C:
		}
	}
}
