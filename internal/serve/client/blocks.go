package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// Blocks passes to each the ranges of a snapshot that hold data, or that changed since
// q.Base, as they arrive: in ascending order, without overlap. It returns the volume's
// size (bytes), 0 if the driver returned nothing. After an error the ranges are
// incomplete; the error is ErrCut if the daemon stopped before the end of the answer.
func (c *Client) Blocks(ctx context.Context, q server.BlocksQuery, each func([]server.BlockRange) error,
) (capacity int64, err error) {
	r := request{
		method: http.MethodGet,
		path:   "/v1/snapshots/" + url.PathEscape(q.Namespace) + "/" + url.PathEscape(q.Name) + "/blocks",
	}
	if q.Base != "" {
		r.query = url.Values{"base": {q.Base}}
	}
	err = lines(ctx, c, r, func(l server.BlocksLine) (last bool, err error) {
		switch {
		case l.End == nil:
			return false, each(l.Ranges)
		case l.End.Failed != nil:
			return true, l.End.Failed
		}
		capacity = l.End.CapacityBytes
		return true, nil
	})
	return capacity, err
}
