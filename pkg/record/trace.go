package record

import "strings"

// HeaderTraceparent is the trace context of what produced the record (https://www.w3.org/TR/trace-context/#traceparent-header). HTTP
// requests have a header of the same name.
const HeaderTraceparent = "traceparent"

// The parts of a traceparent: version, trace id, parent id and flags, each in lower-case hexadecimal digits.
const (
	traceVersion = "00"
	traceIDAt    = len(traceVersion) + 1
	spanIDAt     = traceIDAt + 32 + 1
	flagsAt      = spanIDAt + 16 + 1
	traceLength  = flagsAt + 2
)

// Traceparent returns the trace context in the value of a header, as version 00 writes it, or "" if it is none. Later versions begin alike.
func Traceparent(value string) string {
	if len(value) < traceLength || len(value) > traceLength && (value[:2] == traceVersion || value[traceLength] != '-') || value[:2] == "ff" {
		return ""
	}
	for i := range traceLength {
		c := value[i]
		dash := i == traceIDAt-1 || i == spanIDAt-1 || i == flagsAt-1
		if dash != (c == '-') || !dash && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return ""
		}
	}
	if strings.Trim(value[traceIDAt:spanIDAt-1], "0") == "" || strings.Trim(value[spanIDAt:flagsAt-1], "0") == "" {
		return ""
	}
	if value[:2] != traceVersion || value[flagsAt] != '0' || value[flagsAt+1] > '3' {
		// Two flags are defined. Other ones are not passed on, and OpenTelemetry refuses them.
		flags := strings.IndexByte("0123456789abcdef", value[flagsAt+1]) & 3
		value = traceVersion + value[2:flagsAt] + "0" + string("0123"[flags])
	}
	return value
}

// TraceID returns the id of the trace that the run belongs to, as 32 hexadecimal digits; "" if its records name none.
func (r *Run) TraceID() string {
	if t := Traceparent(r.Traceparent); t != "" {
		return t[traceIDAt : spanIDAt-1]
	}
	return ""
}
