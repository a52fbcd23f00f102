package health

import (
	"context"
	"errors"
	"fmt"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/stats"
	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
)

// alsoAsk adds a question to the driver's Controller service to what q asks, if anything. If either
// fails, the answer of the other alone does not make the volume healthy.
func alsoAsk(q stats.Question, driver string, ask func(context.Context) ([]csiclient.Condition, error),
) stats.Question {
	node := q.Ask
	if node == nil {
		q.Source = driver
		node = func(context.Context) (stats.Report, error) { return stats.Report{}, stats.ErrNone }
	}
	q.Ask = func(ctx context.Context) (stats.Report, error) {
		r, err := node(ctx)
		if errors.Is(err, stats.ErrNone) {
			err = nil
		}
		found, failed := ask(ctx)
		for _, c := range conditions(found) {
			c.Controller = true
			r.Conditions = append(r.Conditions, c)
		}
		switch {
		case err == nil:
			err = failed
		case failed != nil:
			err = fmt.Errorf("%w; %w", err, failed)
		}
		r.Diagnosed = len(r.Conditions) > 0 || err == nil
		return r, err
	}
	return q
}
