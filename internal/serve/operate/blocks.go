package operate

import (
	"context"
	"errors"
	"fmt"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// Blocks lists the blocks of a snapshot that hold data, or that changed since another snapshot
// (server.Storage).
func (o *Objects) Blocks(ctx context.Context, q server.BlocksQuery, each func([]server.BlockRange) error,
) (int64, error) {
	asked := controller.BlockQuery{Snapshot: controller.Key{Namespace: q.Namespace, Name: q.Name}}
	if q.Base != "" {
		asked.Base = controller.Key{Namespace: q.Namespace, Name: q.Base}
	}
	capacity, err := o.c.Controller.Blocks(ctx, asked, func(ranges []controller.Range) error {
		out := make([]server.BlockRange, len(ranges))
		for i, r := range ranges {
			out[i] = server.BlockRange{Offset: r.Offset, Size: r.Size}
		}
		return each(out)
	})
	return capacity, blocksError(err)
}

// blocksError wraps err in the server error that decides the API's answer. A driver's own error stays as
// it is.
func blocksError(err error) error {
	switch {
	case errors.Is(err, controller.ErrNoSnapshot):
		return fmt.Errorf("%w: %w", server.ErrNotFound, err)
	case errors.Is(err, controller.ErrNoBlocks), errors.Is(err, controller.ErrUnreadable):
		return fmt.Errorf("%w: %w", server.ErrConflict, err)
	}
	return err
}
