package isolate

import "context"

// progressKey is the context key of the function that receives a call's progress.
type progressKey struct{}

// WithProgress returns a context for [Pool.Do] that passes the call's progress to f, if
// the handler reports any. f must not block. It may be called after Do has returned,
// for a call that was left behind.
func WithProgress(ctx context.Context, f func(done int64)) context.Context {
	return context.WithValue(ctx, progressKey{}, f)
}

// Report passes the call's progress, in a unit of the handler's choice, to the caller's
// function ([WithProgress]). ctx is the handler's context, or one made by WithProgress.
func Report(ctx context.Context, done int64) {
	if f, ok := ctx.Value(progressKey{}).(func(int64)); ok {
		f(done)
	}
}
