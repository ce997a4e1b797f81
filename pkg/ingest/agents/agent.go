package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/skeinhq/skein/internal/reload"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
)

// OnDisconnect selects what happens to a run whose caller has disconnected.
type OnDisconnect string

const (
	// Finish lets the agent continue, so that the caller finds the run when it reconnects. It is the default.
	Finish OnDisconnect = "finish"
	// Cancel closes the agent's connection.
	Cancel OnDisconnect = "cancel"
)

// OnKafkaFailure selects what happens to a run whose events Kafka does not accept.
type OnKafkaFailure string

const (
	// Continue keeps streaming to the caller. It is the default.
	Continue OnKafkaFailure = "continue"
	// Cut ends the run. Choose it if an unrecorded run is worse than a failed one.
	Cut OnKafkaFailure = "cut"
)

// Runs selects what happens to a start of a run in a thread that has an open run.
type Runs string

const (
	// Allow starts it. It is the default.
	Allow Runs = "allow"
	// Reject refuses it.
	Reject Runs = "reject"
	// Queue starts it once those before it have ended.
	Queue Runs = "queue"
	// CancelFirst stops the open run, and starts it then.
	CancelFirst Runs = "cancel-first"
)

// Agent is the configuration of one agent.
type Agent struct {
	// Name identifies the agent in URLs and records: 1 to 128 of A-Z a-z 0-9 . _ -, first a letter or digit.
	Name string `yaml:"name"`
	// URL accepts a RunAgentInput by POST and answers with SSE.
	URL string `yaml:"url"`
	// Headers are the names of the caller's request headers that are forwarded to the agent.
	Headers []string `yaml:"headers"`
	// Tenants are the only tenants that may call the agent; nil: all. For others there is no such agent.
	Tenants []string `yaml:"tenants"`
	// TenantHeader is the header that tells the agent the caller's tenant, escaped like a part of a record's key; "" is none. The default is
	// DefaultTenantHeader.
	TenantHeader *string `yaml:"tenant_header"`
	// CredentialFile is a file with a secret that every call sends. Each call reads the file again.
	CredentialFile string `yaml:"credential_file"`
	// CredentialHeader is the header that carries the secret. The default is Authorization, with "Bearer " before the
	// secret.
	CredentialHeader string `yaml:"credential_header"`

	// ConnectTimeout limits connecting, TLS included. AnswerTimeout limits the time from the written request to the
	// response headers. The sum of both limits the whole time until the headers, even if the agent reads the request
	// slowly. SilenceTimeout limits the time without a byte of the response, RunTimeout the whole run.
	ConnectTimeout time.Duration `yaml:"connect_timeout"`
	AnswerTimeout  time.Duration `yaml:"answer_timeout"`
	SilenceTimeout time.Duration `yaml:"silence_timeout"`
	RunTimeout     time.Duration `yaml:"run_timeout"`

	OnDisconnect   OnDisconnect   `yaml:"on_disconnect"`
	OnKafkaFailure OnKafkaFailure `yaml:"on_kafka_failure"`

	// Runs is the policy of threads: one run at a time, over all processes, unless it is Allow. MaxQueued limits how many starts wait in a
	// thread.
	Runs      Runs `yaml:"runs"`
	MaxQueued int  `yaml:"max_queued"`

	// Labels maps the key of each label to a JSON Pointer (RFC 6901), which selects the label's value in the input.
	Labels map[string]string `yaml:"labels"`
}

// Defaults of an agent's timeouts. An agent may think for minutes before its first byte, and longer while a tool runs.
// DefaultRunTimeout ends runs that would never end.
const (
	DefaultConnectTimeout = 10 * time.Second
	DefaultAnswerTimeout  = 5 * time.Minute
	DefaultSilenceTimeout = 15 * time.Minute
	DefaultRunTimeout     = 24 * time.Hour
)

// DefaultMaxQueued is the default of Agent.MaxQueued.
const DefaultMaxQueued = 10

// DefaultTenantHeader is the default of TenantHeader.
const DefaultTenantHeader = "X-Skein-Tenant"

// ErrConfig is the error of an invalid agent configuration.
var ErrConfig = errors.New("not a configuration of agents")

var agentName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// withDefaults returns the agent with defaults for its unset members.
func (a Agent) withDefaults() Agent {
	a.ConnectTimeout = cmp.Or(a.ConnectTimeout, DefaultConnectTimeout)
	a.AnswerTimeout = cmp.Or(a.AnswerTimeout, DefaultAnswerTimeout)
	a.SilenceTimeout = cmp.Or(a.SilenceTimeout, DefaultSilenceTimeout)
	a.RunTimeout = cmp.Or(a.RunTimeout, DefaultRunTimeout)
	if a.TenantHeader == nil {
		a.TenantHeader = new(DefaultTenantHeader)
	}
	a.OnDisconnect = cmp.Or(a.OnDisconnect, Finish)
	a.OnKafkaFailure = cmp.Or(a.OnKafkaFailure, Continue)
	a.Runs = cmp.Or(a.Runs, Allow)
	a.MaxQueued = cmp.Or(a.MaxQueued, DefaultMaxQueued)
	if a.CredentialFile != "" {
		a.CredentialHeader = cmp.Or(a.CredentialHeader, "Authorization")
	}
	return a
}

// OneRun reports whether the agent has a policy for threads.
func (a Agent) OneRun() bool { return a.Runs != Allow && a.Runs != "" }

// check returns an error for the first invalid setting, with a hint what to write instead.
func (a Agent) check() error {
	if !agentName.MatchString(a.Name) {
		return fmt.Errorf("name %.200q: write 1 to 128 of A-Z a-z 0-9 . _ -, first a letter or digit", a.Name)
	}
	if err := checkURL(a.URL); err != nil {
		return err
	}
	for _, t := range []struct {
		name string
		d    time.Duration
	}{
		{"connect_timeout", a.ConnectTimeout}, {"answer_timeout", a.AnswerTimeout},
		{"silence_timeout", a.SilenceTimeout}, {"run_timeout", a.RunTimeout},
	} {
		if t.d <= 0 {
			return fmt.Errorf("%s %s: write a time above 0, such as 30s or 15m", t.name, t.d)
		}
	}
	if a.OnDisconnect != Finish && a.OnDisconnect != Cancel {
		return fmt.Errorf("on_disconnect %q: write %s or %s", a.OnDisconnect, Finish, Cancel)
	}
	if a.OnKafkaFailure != Continue && a.OnKafkaFailure != Cut {
		return fmt.Errorf("on_kafka_failure %q: write %s or %s", a.OnKafkaFailure, Continue, Cut)
	}
	if !slices.Contains([]Runs{Allow, Reject, Queue, CancelFirst}, a.Runs) {
		return fmt.Errorf("runs %q: write %s, %s, %s or %s", a.Runs, Allow, Reject, Queue, CancelFirst)
	}
	if a.MaxQueued < 1 {
		return fmt.Errorf("max_queued %d: write a number above 0", a.MaxQueued)
	}
	return errors.Join(a.checkHeaders(), a.checkTenants(), a.checkLabels())
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		var parse *url.Error
		if errors.As(err, &parse) {
			err = parse.Err // without the URL, which may contain a password
		}
		return fmt.Errorf("url: %w", err)
	case (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		return errors.New("url: write one that begins with http:// or https:// and has a host")
	case u.User != nil:
		return errors.New("url: it has a user or password: put the secret into a file and name it as credential_file")
	case u.Fragment != "":
		return errors.New("url: leave out what begins with #: it is not sent")
	}
	return nil
}

// own lists headers that cannot be forwarded: those that Call sets itself, and those that concern only one connection.
var own = []string{
	"Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Host", "Keep-Alive",
	"Proxy-Authorization", "Proxy-Connection", "Skein-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

func (a Agent) checkHeaders() error {
	seen := map[string]bool{}
	for _, h := range a.Headers {
		name := textproto.CanonicalMIMEHeaderKey(h)
		switch {
		case !headerName.MatchString(h):
			return fmt.Errorf("headers: %.100q is no name of a header", h)
		case slices.Contains(own, name):
			return fmt.Errorf("headers: %s cannot go on to an agent: leave it out", name)
		case seen[name]:
			return fmt.Errorf("headers: %s is there twice: leave one out", name)
		}
		seen[name] = true
	}
	if a.CredentialFile == "" {
		if a.CredentialHeader != "" {
			return errors.New("credential_header: there is no credential_file that it could carry: name one, or leave it out")
		}
		return nil
	}
	name := textproto.CanonicalMIMEHeaderKey(a.CredentialHeader)
	switch {
	case !headerName.MatchString(a.CredentialHeader) || slices.Contains(own, name):
		return fmt.Errorf("credential_header: %.100q cannot carry a credential", a.CredentialHeader)
	case seen[name]:
		return fmt.Errorf("headers: %s carries the credential, so the caller's cannot go on: leave it out", name)
	}
	if _, err := a.credential(); err != nil {
		return fmt.Errorf("credential_file: %w", err)
	}
	return nil
}

// checkTenants checks the list of tenants and the header that names them, which no caller and no credential may set.
func (a Agent) checkTenants() error {
	if a.Tenants != nil && len(a.Tenants) == 0 {
		return errors.New("tenants: the list is empty, so nobody could call the agent: name tenants, or leave it out for all")
	}
	for _, t := range a.Tenants {
		if err := record.ValidateID(t); err != nil {
			return fmt.Errorf("tenants: %w", err)
		}
	}
	name := textproto.CanonicalMIMEHeaderKey(*a.TenantHeader)
	if name == "" {
		return nil
	}
	taken := func(h string) bool { return textproto.CanonicalMIMEHeaderKey(h) == name }
	if !headerName.MatchString(name) || slices.Contains(own, name) || slices.ContainsFunc(a.Headers, taken) || taken(a.CredentialHeader) {
		return fmt.Errorf("tenant_header: %.100q cannot carry the tenant: take a header that neither the caller nor a credential sets", name)
	}
	return nil
}

// Allows reports whether a tenant may call the agent.
func (a Agent) Allows(tenant string) bool {
	return a.Tenants == nil || slices.Contains(a.Tenants, tenant)
}

var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

func (a Agent) checkLabels() error {
	if len(a.Labels) > record.MaxLabels {
		return fmt.Errorf("labels: there are %d, and a run has at most %d", len(a.Labels), record.MaxLabels)
	}
	for key, pointer := range a.Labels {
		if !(record.Label{Key: key}).Valid() {
			return fmt.Errorf("labels: %.300q is no key of a label: write 1 to %d bytes of UTF-8", key, record.MaxLabelBytes)
		}
		if pointer == "" || !agui.IsPointer(pointer) {
			return fmt.Errorf("labels: %s: %.100q is no JSON pointer: write one such as /forwardedProps/userId", key, pointer)
		}
	}
	return nil
}

// maxCredentialBytes is the largest accepted credential file, in bytes.
const maxCredentialBytes = 64 << 10

// credential reads the credential file and returns the header's value; "" if no credential is configured.
func (a Agent) credential() (string, error) {
	if a.CredentialFile == "" {
		return "", nil
	}
	text, err := reload.File(a.CredentialFile, maxCredentialBytes)(context.Background())
	if err != nil {
		return "", fmt.Errorf("reading credential %s: %w", a.CredentialFile, err)
	}
	secret := strings.TrimRight(string(text), "\r\n")
	if secret == "" || strings.ContainsAny(secret, "\r\n\x00") {
		return "", fmt.Errorf("reading credential: %s must hold the secret on one line", a.CredentialFile)
	}
	if http.CanonicalHeaderKey(a.CredentialHeader) == "Authorization" {
		return "Bearer " + secret, nil
	}
	return secret, nil
}

// LabelsOf returns the labels of a run, sorted by key. Their values are those in the run's input that the configuration
// points to: a string as its text, a number or boolean as JSON. LabelsOf omits labels whose value is missing, null, an
// object, a list or longer than record.MaxLabelBytes.
func (a Agent) LabelsOf(input []byte) []record.Label {
	var labels []record.Label
	for _, key := range slices.Sorted(maps.Keys(a.Labels)) {
		names, _ := agui.PointerNames(a.Labels[key]) // checked
		text, ok := scalar(agui.At(input, names))
		if l := (record.Label{Key: key, Value: text}); ok && l.Valid() {
			labels = append(labels, l)
		}
	}
	return labels
}

// scalar returns the label text of a JSON value. ok is false for null, objects and lists.
func scalar(v json.RawMessage) (string, bool) {
	if v == nil || agui.IsObject(v) || agui.IsArray(v) || string(v) == "null" {
		return "", false
	}
	if !agui.IsString(v) {
		return string(v), true
	}
	var s agui.String
	err := s.UnmarshalJSON(v)
	return string(s), err == nil
}
