package isolate

import (
	"context"
	"errors"
	"testing"
)

// handled calls a handler directly, without a helper.
type handled struct{ Handler }

func (h handled) Do(ctx context.Context, _, _ string, request []byte) ([]byte, error) {
	return h.Handler(ctx, request)
}

func TestAskAndHandleSpeakJSON(t *testing.T) {
	type pair struct{ A, B int }
	failed := errors.New("no")
	sum := handled{Handle(func(_ context.Context, p pair) (any, error) {
		switch {
		case p.A < 0:
			return nil, failed
		case p.A == 0:
			return nil, nil
		}
		return p.A + p.B, nil
	})}
	for _, tc := range []struct {
		request any
		want    int
		err     error
	}{
		{pair{2, 3}, 5, nil},
		{pair{0, 3}, 0, nil}, // no answer
		{pair{-1, 3}, 0, failed},
	} {
		if got, err := Ask[int](t.Context(), sum, "key", "sum", tc.request); got != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("%v: %d, %v; want %d, %v", tc.request, got, err, tc.want, tc.err)
		}
	}
	if _, err := Ask[int](t.Context(), sum, "key", "sum", "no pair"); err == nil {
		t.Error("a request of another form is taken")
	}
	if _, err := Ask[string](t.Context(), sum, "key", "sum", pair{2, 3}); err == nil {
		t.Error("an answer of another form is taken")
	}
}
