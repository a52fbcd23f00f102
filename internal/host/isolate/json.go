package isolate

import (
	"context"
	"encoding/json"
	"fmt"
)

// Doer makes calls in helpers. A [*Pool] is a Doer.
type Doer interface {
	// Do is documented at [Pool.Do].
	Do(ctx context.Context, key, call string, request []byte) ([]byte, error)
}

// Ask makes a call whose handler was made by [Handle] and returns its answer, or the
// zero value if the call has none.
func Ask[A any](ctx context.Context, d Doer, key, call string, request any) (answer A, err error) {
	text, err := json.Marshal(request)
	if err != nil {
		return answer, err
	}
	reply, err := d.Do(ctx, key, call, text)
	if err != nil || len(reply) == 0 {
		return answer, err
	}
	err = json.Unmarshal(reply, &answer)
	return answer, err
}

// Handle returns the handler of a call whose request and answer are JSON. A nil answer
// sends an empty reply.
func Handle[Q any](f func(ctx context.Context, request Q) (answer any, err error)) Handler {
	return func(ctx context.Context, text []byte) ([]byte, error) {
		var request Q
		if err := json.Unmarshal(text, &request); err != nil {
			return nil, fmt.Errorf("read the request: %w", err)
		}
		answer, err := f(ctx, request)
		if err != nil || answer == nil {
			return nil, err
		}
		return json.Marshal(answer)
	}
}
