package app

import (
	"context"
	"log/slog"
	"net/http"
	"slices"

	"github.com/spf13/pflag"
	"golang.org/x/net/netutil"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/tenant"
)

// API has the settings of a stage's HTTP API: its listener, credentials and quotas.
type API struct {
	listen, keys, tenant string
	quotas               string
	replicas             int
	tokens               tenant.TokenConfig
	tls                  ListenerTLS
	auditLog             string
	accessLog            bool
	// TenantMetrics is how many tenants have their own metrics.
	TenantMetrics int
	// CORS allows calls of web pages; a flag sets its origins.
	CORS CORS
	// Connections is the maximum number of open connections. Further ones wait to be accepted.
	Connections int
	// Drain is how the API stops.
	Drain Drain
}

// Flags adds the flags; listen is the default address.
func (a *API) Flags(f *pflag.FlagSet, listen string) {
	f.StringVar(&a.listen, "listen", listen, "`ADDRESS` of the HTTP API")
	f.StringVar(&a.keys, "api-keys", "", "`FILE` of hashed API keys (see skein keys new); reloaded when it changes")
	f.StringVar(&a.tenant, "tenant", "",
		"for trying out, instead of --api-keys: every request belongs to `TENANT`; only with --listen on loopback")
	f.StringVar(&a.quotas, "quotas", "", "YAML `FILE` with the quotas of tenants; reloaded when it changes; by default none")
	f.IntVar(&a.replicas, "replicas", 1, "`NUMBER` of processes of this stage; each grants an equal part of the quotas")
	a.tokens = tenant.DefaultTokenConfig()
	f.StringVar(&a.tokens.JWKS, "jwt-jwks", "",
		"`FILE` or https:// URL of the key set (JWKS) for JSON Web Tokens, which are then accepted besides API keys; reloaded regularly")
	f.StringVar(&a.tokens.Issuer, "jwt-issuer", "", "`ISSUER` that tokens must name (iss)")
	f.StringVar(&a.tokens.Audience, "jwt-audience", "", "`AUDIENCE` that tokens must name (aud)")
	f.StringVar(&a.tokens.TenantClaim, "jwt-tenant-claim", a.tokens.TenantClaim, "`CLAIM` with a token's tenant")
	f.StringVar(&a.tokens.ScopeClaim, "jwt-scope-claim", a.tokens.ScopeClaim,
		"`CLAIM` with a token's scopes (publish, read, erase), as a list or separated by spaces")
	f.DurationVar(&a.tokens.Skew, "jwt-skew", a.tokens.Skew, "how far the issuer's clock may be off; at most "+tenant.MaxTokenSkew.String())
	a.tls.Flags(f, "tls", "the HTTP API")
	f.StringVar(&a.auditLog, "audit-log", "",
		"audit log: append a line to `FILE` for each read, publish, erasure and export, with its caller and result; - is stdout; off by default")
	f.BoolVar(&a.accessLog, "access-log", false, "log each request")
	f.IntVar(&a.TenantMetrics, "tenant-metrics", 20,
		"name the `N` largest tenants in metrics; all others count as \"other\"; 0 means no metrics by tenant")
	CORSFlag(f, &a.CORS.Origins)
}

// Check returns the first error in the settings. Settings that would open the API by mistake are errors, too.
func (a *API) Check() error {
	if err := a.CORS.Check(); err != nil {
		return err
	}
	if a.TenantMetrics < 0 {
		return Usagef("checking tenant-metrics: %d is negative", a.TenantMetrics)
	}
	if a.replicas < 1 {
		return Usagef("checking replicas: %d is below 1: set the number of processes of this stage", a.replicas)
	}
	if err := a.tls.Check(); err != nil {
		return err
	}
	if a.tokens.JWKS == "" && a.tokens.Issuer+a.tokens.Audience != "" {
		return Usagef("--jwt-issuer and --jwt-audience need --jwt-jwks, the key set that signs tokens")
	}
	if a.tokens.JWKS != "" {
		if err := a.tokens.Validate(); err != nil {
			return Usagef("checking jwt-…: %w", err)
		}
	}
	switch {
	case a.authenticates() && a.tenant != "":
		return Usagef("--tenant cannot be combined with --api-keys or --jwt-jwks: with --tenant requests need no credentials")
	case a.authenticates():
		return nil
	case a.tenant == "":
		return Usagef("no credentials are configured, so every request would be refused: pass --api-keys FILE (or " +
			"SKEIN_API_KEYS), --jwt-jwks FILE or URL, or to try it on this machine --tenant ID")
	}
	if slices.Contains(a.CORS.Origins, anyOrigin) {
		return Usagef("checking cors-origin: with --tenant requests need no key, so * would let every web page in: name the " +
			"origins, or pass --api-keys FILE")
	}
	if err := record.ValidateID(a.tenant); err != nil {
		return Usagef("checking tenant: %w", err)
	}
	if err := CheckLoopback(a.listen); err != nil {
		return Usagef("checking listen: %w: or pass --api-keys FILE", err)
	}
	return nil
}

// authenticates reports whether callers need credentials.
func (a *API) authenticates() bool { return a.keys != "" || a.tokens.JWKS != "" }

// Authenticator returns the authenticator of the settings, after Check. The process reloads the key file and the key set while
// it runs, and is not ready before it has read each of them once.
func (a *API) Authenticator(ctx context.Context, p *Process) (tenant.Authenticator, error) {
	if !a.authenticates() {
		p.Logger.Warn("there is no authentication: every request belongs to the tenant", "tenant", a.tenant)
		return tenant.Fixed(a.tenant), nil
	}
	var keys *tenant.KeyFile
	var tokens *tenant.Tokens
	if a.keys != "" {
		keys = tenant.OpenKeyFile(a.keys, p.Logger, p.Registry)
		p.Admin.AddCheck("api-keys", func(context.Context) error { return keys.Ready() })
		p.Admin.AddRemark("api-keys-file", func(context.Context) error { return keys.Stale() })
		p.Group.Go(ctx, "API keys", keys.Run)
	}
	if a.tokens.JWKS != "" {
		var err error
		if tokens, err = tenant.OpenTokens(ctx, a.tokens, p.Logger, p.Registry); err != nil {
			return nil, err
		}
		p.Admin.AddCheck("jwks", func(context.Context) error { return tokens.Ready() })
		p.Admin.AddRemark("jwks-set", func(context.Context) error { return tokens.Stale() })
		p.Group.Go(ctx, "key set of tokens", tokens.Run)
	}
	switch {
	case tokens == nil:
		return keys, nil
	case keys == nil:
		return tokens, nil
	}
	return tenant.Either(keys, tokens), nil
}

// Quotas returns the tenants' quotas: from the file that --quotas names, else the stage's limits. The process reloads the file
// while it runs; an invalid file at the start is an error.
func (a *API) Quotas(ctx context.Context, p *Process, stage quota.Limits) (*quota.Quotas, error) {
	q, err := quota.Open(quota.Config{Path: a.quotas, Replicas: a.replicas, Stage: stage, Logger: p.Logger, Registerer: p.Registry})
	if err != nil {
		return nil, err
	}
	p.Group.Go(ctx, "quotas", q.Run)
	return q, nil
}

// Serve adds the stage's HTTP API to the process. Without credentials it refuses requests from web pages.
func (a *API) Serve(ctx context.Context, p *Process, handler http.Handler) error {
	l, err := Listen(ctx, a.listen, "listen")
	if err != nil {
		return err
	}
	l, err = p.secure(netutil.LimitListener(l, a.Connections), "tls", &a.tls)
	if err != nil {
		return err
	}
	var log *front.AuditLog
	var access *slog.Logger
	if a.accessLog {
		access = p.Logger
	}
	if a.auditLog != "" {
		if log, err = front.OpenAuditLog(a.auditLog, p.name, p.stdout, p.Logger, p.Registry); err != nil {
			return err
		}
		p.Admin.AddRemark("audit-log", func(context.Context) error { return log.Ready() })
		p.Group.Closing(ctx, "audit log", log.Close) // closes after the HTTP listener, which is added later
	}
	handler = front.Audited(a.CORS.Handler(handler), p.name, log, access)
	if !a.authenticates() {
		handler = LocalOnly(handler, a.CORS.Origins...)
	}
	p.Logger.Info("listening", "address", l.Addr().String())
	p.Group.Go(ctx, "HTTP listener", func(ctx context.Context) error { return ServeDraining(ctx, l, handler, p.Logger, a.Drain) })
	return nil
}
