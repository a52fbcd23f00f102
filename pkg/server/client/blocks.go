package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/csi-volmgr/csi-volmgr/pkg/server"
)

// Blocks calls each with the ranges of a snapshot that hold data, or changed since q.Base, as they
// come: in ascending order, none overlapping. It returns the size of the volume (bytes), 0 where
// the driver had nothing to tell. After an error the ranges are not all; ErrCut is that of a
// daemon that ended before the answer did.
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
