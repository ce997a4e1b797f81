package agents

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
)

// OnDisconnect says what becomes of a run whose caller has left.
type OnDisconnect string

const (
	// Finish lets the agent go on, so that the run is there when the caller comes back. The default.
	Finish OnDisconnect = "finish"
	// Cancel closes the agent's connection.
	Cancel OnDisconnect = "cancel"
)

// OnKafkaFailure says what becomes of a run whose events Kafka does not take.
type OnKafkaFailure string

const (
	// Continue goes on with the caller's stream. The default.
	Continue OnKafkaFailure = "continue"
	// Cut ends it, for those to whom a run that is not recorded is worse than none.
	Cut OnKafkaFailure = "cut"
)

// Agent is the configuration of one agent.
type Agent struct {
	// Name is what callers and records name it by: 1 to 128 of A-Z a-z 0-9 . _ -, first a letter or digit.
	Name string `yaml:"name"`
	// URL takes a RunAgentInput by POST and answers with SSE.
	URL string `yaml:"url"`
	// Headers of the caller's request that go on to the agent.
	Headers []string `yaml:"headers"`
	// CredentialFile holds a secret that every call carries. It is read again for each one.
	CredentialFile string `yaml:"credential_file"`
	// CredentialHeader is the header that carries it; Authorization where it is not set, with "Bearer " before the secret.
	CredentialHeader string `yaml:"credential_header"`

	// ConnectTimeout is for the connection, TLS included; AnswerTimeout from there to the answer's headers, and both together bound the time
	// until these, however slowly the agent reads;
	// SilenceTimeout without a byte of the answer; RunTimeout for all of it.
	ConnectTimeout time.Duration `yaml:"connect_timeout"`
	AnswerTimeout  time.Duration `yaml:"answer_timeout"`
	SilenceTimeout time.Duration `yaml:"silence_timeout"`
	RunTimeout     time.Duration `yaml:"run_timeout"`

	OnDisconnect   OnDisconnect   `yaml:"on_disconnect"`
	OnKafkaFailure OnKafkaFailure `yaml:"on_kafka_failure"`

	// Labels are JSON Pointers (RFC 6901) into the input, by the key of the label that the value there becomes.
	Labels map[string]string `yaml:"labels"`
}

// The timeouts of an agent that sets none. An agent may think for minutes before its first byte, and longer
// while a tool runs; a day ends what would never end.
const (
	DefaultConnectTimeout = 10 * time.Second
	DefaultAnswerTimeout  = 5 * time.Minute
	DefaultSilenceTimeout = 15 * time.Minute
	DefaultRunTimeout     = 24 * time.Hour
)

// ErrConfig says that an agent's configuration is not as it must be.
var ErrConfig = errors.New("not a configuration of agents")

var agentName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// withDefaults returns the agent with what is not set.
func (a Agent) withDefaults() Agent {
	a.ConnectTimeout = cmp.Or(a.ConnectTimeout, DefaultConnectTimeout)
	a.AnswerTimeout = cmp.Or(a.AnswerTimeout, DefaultAnswerTimeout)
	a.SilenceTimeout = cmp.Or(a.SilenceTimeout, DefaultSilenceTimeout)
	a.RunTimeout = cmp.Or(a.RunTimeout, DefaultRunTimeout)
	a.OnDisconnect = cmp.Or(a.OnDisconnect, Finish)
	a.OnKafkaFailure = cmp.Or(a.OnKafkaFailure, Continue)
	if a.CredentialFile != "" {
		a.CredentialHeader = cmp.Or(a.CredentialHeader, "Authorization")
	}
	return a
}

// check says what cannot work, and what to write instead.
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
	return errors.Join(a.checkHeaders(), a.checkLabels())
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		var parse *url.Error
		if errors.As(err, &parse) {
			err = parse.Err // without the text: it may hold a password
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

// own are headers that the call itself sets, and those that are of one connection.
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

var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

func (a Agent) checkLabels() error {
	if len(a.Labels) > record.MaxLabels {
		return fmt.Errorf("labels: there are %d, and a run has at most %d", len(a.Labels), record.MaxLabels)
	}
	for key, pointer := range a.Labels {
		if !(record.Label{Key: key}).Valid() {
			return fmt.Errorf("labels: %.300q is no key of a label: write 1 to %d bytes of UTF-8", key, record.MaxLabelBytes)
		}
		if !isPointer(pointer) {
			return fmt.Errorf("labels: %s: %.100q is no JSON pointer: write one such as /forwardedProps/userId", key, pointer)
		}
	}
	return nil
}

// maxCredentialBytes bounds what is read of a secret.
const maxCredentialBytes = 64 << 10

// credential returns the header's value; "" where the agent takes none.
func (a Agent) credential() (string, error) {
	if a.CredentialFile == "" {
		return "", nil
	}
	info, err := os.Stat(a.CredentialFile)
	if err != nil {
		return "", fmt.Errorf("reading credential: %w", err)
	}
	if info.Size() > maxCredentialBytes {
		return "", fmt.Errorf("reading credential: %s has more than %d bytes", a.CredentialFile, maxCredentialBytes)
	}
	text, err := os.ReadFile(a.CredentialFile)
	if err != nil {
		return "", fmt.Errorf("reading credential: %w", err)
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

// LabelsOf returns the labels of a run, by key: the values in its input that the configuration points at. A
// string is its text, a number or boolean as it is written. What is not there or cannot be a label (an object, a
// list, null, more than record.MaxLabelBytes) is left out.
func (a Agent) LabelsOf(input []byte) []record.Label {
	var labels []record.Label
	for _, key := range slices.Sorted(maps.Keys(a.Labels)) {
		text, ok := scalar(find(input, a.Labels[key]))
		if l := (record.Label{Key: key, Value: text}); ok && l.Valid() {
			labels = append(labels, l)
		}
	}
	return labels
}

// scalar returns a value as the text of a label.
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
