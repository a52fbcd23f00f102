package isolate

import "context"

// progressKey is the context's key of the function that takes a call's progress.
type progressKey struct{}

// WithProgress returns a context for [Pool.Do] by which f is called with how far the
// call is, where its handler reports that. f must not block; it may be called
// after Do returned, for a call that was left behind.
func WithProgress(ctx context.Context, f func(done int64)) context.Context {
	return context.WithValue(ctx, progressKey{}, f)
}

// Report calls the caller's function ([WithProgress]) with how far the call is, in a
// unit of its own. ctx is the handler's, or one that WithProgress made.
func Report(ctx context.Context, done int64) {
	if f, ok := ctx.Value(progressKey{}).(func(int64)); ok {
		f(done)
	}
}
