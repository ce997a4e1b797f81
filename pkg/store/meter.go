package store

import "context"

// RowBytes and MessageBytes estimate the memory of a Run and of a message of a Content, in addition to 1.5 times their stored bytes.
const (
	RowBytes     = 1 << 10
	MessageBytes = 128
)

type meterKey struct{}

// WithMeter returns a context with a meter: before a Reader keeps a row, it calls take with the memory of the row, from any
// goroutine. If take returns an error, the Reader returns that error.
func WithMeter(ctx context.Context, take func(bytes int64) error) context.Context {
	return context.WithValue(ctx, meterKey{}, take)
}

// Metered reports the memory of a row to the context's meter, in bytes: the argument each plus 1.5 times the argument stored.
func Metered(ctx context.Context, each, stored int) error {
	take, ok := ctx.Value(meterKey{}).(func(int64) error)
	if !ok {
		return nil
	}
	return take(int64(each) + int64(stored)*3/2)
}
