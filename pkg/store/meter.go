package store

import "context"

// RowBytes and MessageBytes are about how much memory a Run and a message of a Content take beside one and a half times the bytes that
// they are stored as.
const (
	RowBytes     = 1 << 10
	MessageBytes = 128
)

type meterKey struct{}

// WithMeter returns a context in which a Reader says how much memory its answer takes, row by row and before it keeps one: it calls take,
// from any goroutine. An error of take ends the read, and is in what the Reader returns.
func WithMeter(ctx context.Context, take func(bytes int64) error) context.Context {
	return context.WithValue(ctx, meterKey{}, take)
}

// Metered counts a row that is read: each takes some memory, and its stored bytes more.
func Metered(ctx context.Context, each, stored int) error {
	take, ok := ctx.Value(meterKey{}).(func(int64) error)
	if !ok {
		return nil
	}
	return take(int64(each) + int64(stored)*3/2)
}
