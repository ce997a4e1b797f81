package steps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/ext"
	"cel.dev/cel-go/interpreter"

	"github.com/skeinhq/skein/pkg/agui"
)

// costLimit bounds the evaluation of a condition at one step, in CEL's cost units: about a second.
const costLimit = 10_000_000

// Condition is a CEL expression (https://cel.dev) over messages, state and event, decoded from JSON: numbers are doubles.
type Condition struct {
	text    string
	program cel.Program
	decoded decoded
}

// NewCondition compiles an expression. CEL's error names the line and column.
func NewCondition(text string) (*Condition, error) {
	env, err := cel.NewEnv(
		cel.Variable("messages", cel.ListType(cel.DynType)),
		cel.Variable("state", cel.DynType),
		cel.Variable("event", cel.MapType(cel.StringType, cel.DynType)),
		cel.CrossTypeNumericComparisons(true), // for state.n > 5, since numbers in the state are doubles
		cel.OptionalTypes(),
		ext.Strings(), ext.Lists(), ext.Math(),
	)
	if err != nil {
		return nil, fmt.Errorf("making CEL environment: %w", err)
	}
	ast, issues := env.Compile(text)
	if err := issues.Err(); err != nil {
		return nil, fmt.Errorf("reading expression: %w", err)
	}
	if t := ast.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("reading expression: it gives %s, not bool", t)
	}
	program, err := env.Program(ast, cel.CostLimit(costLimit), cel.InterruptCheckFrequency(1000), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, fmt.Errorf("reading expression: %w", err)
	}
	return &Condition{text: text, program: program}, nil
}

// String returns the expression.
func (c *Condition) String() string { return c.text }

// ErrCost means that a condition takes too long to evaluate at one step.
var ErrCost = errors.New("the expression costs too much to evaluate")

// UndecidedError means that a condition is neither true nor false at a step, because a member is missing or of another type.
type UndecidedError struct{ err error }

func (e *UndecidedError) Error() string { return e.err.Error() }

// Unwrap returns CEL's error.
func (e *UndecidedError) Unwrap() error { return e.err }

// Holds reports whether the condition is true at a moment. The error is an *UndecidedError, ErrCost, or the context's error.
func (c *Condition) Holds(ctx context.Context, m Moment) (bool, error) {
	c.decoded.moment = m
	value, _, err := c.program.ContextEval(ctx, &c.decoded)
	var ended interpreter.EvalCancelledError
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case errors.As(err, &ended):
		return false, fmt.Errorf("step %d: %w: %w", m.N, ErrCost, err)
	case err != nil:
		return false, &UndecidedError{fmt.Errorf("step %d: %w", m.N, err)}
	}
	holds, ok := value.Value().(bool)
	if !ok {
		return false, &UndecidedError{fmt.Errorf("step %d: the expression gives %s, not bool", m.N, value.Type().TypeName())}
	}
	return holds, nil
}

// decoded provides the variables of a moment to CEL. It decodes only the variables that the expression names, and of messages
// and state only what has changed since the last moment.
type decoded struct {
	moment   Moment
	messages []any
	raw      []agui.Message // of messages
	state    any
	rawState json.RawMessage
}

// Parent implements cel.Activation.
func (*decoded) Parent() cel.Activation { return nil }

// ResolveName implements cel.Activation.
func (d *decoded) ResolveName(name string) (any, bool) {
	switch name {
	case "messages":
		return d.list(), true
	case "state":
		if !identical(d.moment.State, d.rawState) {
			d.state, d.rawState = value(d.moment.State), d.moment.State
		}
		return d.state, true
	case "event":
		event, ok := value(d.moment.Event).(map[string]any)
		if !ok {
			event = map[string]any{}
		}
		return event, true
	}
	return nil, false
}

func (d *decoded) list() []any {
	was := d.messages
	is := make([]any, len(d.moment.Messages))
	for i, m := range d.moment.Messages {
		if i < len(was) && identical(m.Raw, d.raw[i].Raw) {
			is[i] = was[i]
		} else {
			is[i] = value(m.Raw)
		}
	}
	d.messages, d.raw = is, d.moment.Messages
	return is
}

// identical reports whether two texts are the same slice.
func identical(a, b json.RawMessage) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// value decodes JSON. It returns nil for invalid JSON.
func value(text json.RawMessage) any {
	var v any
	if json.Unmarshal(text, &v) != nil {
		return nil
	}
	return v
}
