package artifact

import (
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/skeinhq/skein/pkg/agui"
)

// The constant fields of every artifact of version 1.
const (
	Schema    = "ag-ui.compacted-message-snapshot.export.v1"
	Framework = "ag_ui"
	Surface   = "compacted_message_snapshot_artifact"
)

// Limits of the contract, in Unicode characters.
const (
	MaxRef          = 512 // of a thread, run or message id
	MaxName         = 512
	MaxErrorMessage = 500
	MaxErrorCode    = 100
)

// Artifact is one export.
type Artifact struct {
	// ThreadIDRef and RunIDRef are the platform's ids, opaque and never a URL.
	ThreadIDRef, RunIDRef string
	// ParentRunIDRef is empty if no parent was observed.
	ParentRunIDRef string
	StartedAt      time.Time
	// FinishedAt is zero if no time was observed.
	FinishedAt time.Time
	Messages   []Message
	// TerminalEvent is RUN_FINISHED or RUN_ERROR.
	TerminalEvent agui.Type
	// ErrorMessage, one line, and ErrorCode are set only with RUN_ERROR; empty means none.
	ErrorMessage, ErrorCode string
}

// Message is one plain-text message.
type Message struct {
	// ID is unique within an artifact.
	ID   string
	Role string
	// Content may be empty.
	Content string
	// Name is empty if there is none.
	Name string
}

// Roles returns the roles of the contract, in its order.
func Roles() []string {
	return []string{agui.RoleDeveloper, agui.RoleSystem, agui.RoleAssistant, agui.RoleUser, agui.RoleTool}
}

func isRole(s string) bool {
	return slices.Contains(Roles(), s)
}

var address = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)

// Validate checks the artifact against the contract. It returns an *Error with the first rule that the artifact breaks.
func (a *Artifact) Validate() error {
	for _, ref := range []struct{ field, value string }{
		{"thread_id_ref", a.ThreadIDRef}, {"run_id_ref", a.RunIDRef}, {"parent_run_id_ref", a.ParentRunIDRef},
	} {
		if ref.value == "" && ref.field == "parent_run_id_ref" {
			continue
		}
		if err := checkRef(ref.field, ref.value); err != nil {
			return err
		}
	}
	if a.StartedAt.IsZero() {
		return refuse(RuleNoStart, "started_at", "there is no time at which the run began")
	}
	for _, at := range []struct {
		field string
		value time.Time
	}{{"started_at", a.StartedAt}, {"finished_at", a.FinishedAt}} {
		if y := at.value.UTC().Year(); y < 0 || y > 9999 {
			return refuse(RuleTime, at.field, "the year %d has no place in RFC 3339", y)
		}
	}
	if err := a.validateEnd(); err != nil {
		return err
	}
	seen := make(map[string]bool, len(a.Messages))
	for i, m := range a.Messages {
		if err := m.validate(at("messages", i)); err != nil {
			return err
		}
		if seen[m.ID] {
			return refuse(RuleDuplicateID, at("messages", i), "another message has the id %.80q", m.ID)
		}
		seen[m.ID] = true
	}
	return nil
}

func (a *Artifact) validateEnd() error {
	switch a.TerminalEvent {
	case agui.RunFinished:
		if a.ErrorMessage != "" || a.ErrorCode != "" {
			return refuse(RuleErrorWithFinished, "error_message", "a run that finished has no error")
		}
	case agui.RunError:
		if a.ErrorCode != "" && a.ErrorMessage == "" {
			return refuse(RuleCodeAlone, "error_code", "it comes with an error_message only")
		}
	default:
		return refuse(RuleTerminal, "terminal_event", "it is RUN_FINISHED or RUN_ERROR, not %.80q", a.TerminalEvent)
	}
	if err := checkLine("error_message", a.ErrorMessage, MaxErrorMessage); err != nil {
		return err
	}
	return checkLine("error_code", a.ErrorCode, MaxErrorCode)
}

func (m Message) validate(where string) error {
	if err := checkRef(where+".id", m.ID); err != nil {
		return err
	}
	if !isRole(m.Role) {
		return refuse(RuleRole, where+".role", "%.80q is none of the roles of the contract", m.Role)
	}
	if !utf8.ValidString(m.Content) {
		return refuse(RuleUnicode, where+".content", "half of a surrogate pair is no text")
	}
	return checkText(where+".name", m.Name, MaxName)
}

func checkRef(where, s string) error {
	if s == "" {
		return refuse(RuleLength, where, "it is empty")
	}
	if err := checkText(where, s, MaxRef); err != nil {
		return err
	}
	if address.MatchString(s) {
		return refuse(RuleAddress, where, "%.80q is an address: a reference must not lead anywhere", s)
	}
	return nil
}

// checkText checks an optional text for UTF-8 and its length in characters.
func checkText(where, s string, limit int) error {
	if !utf8.ValidString(s) {
		return refuse(RuleUnicode, where, "half of a surrogate pair is no text")
	}
	if n := utf8.RuneCountInString(s); n > limit {
		return refuse(RuleLength, where, "it has %d characters, %d are allowed", n, limit)
	}
	return nil
}

func checkLine(where, s string, limit int) error {
	if strings.ContainsAny(s, "\r\n") {
		return refuse(RuleLines, where, "it has several lines")
	}
	return checkText(where, s, limit)
}
