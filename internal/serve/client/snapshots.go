package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// Snapshots lists the snapshots.
func (c *Client) Snapshots(ctx context.Context) ([]server.SnapshotStatus, error) {
	return list[server.SnapshotStatus](ctx, c, "/v1/snapshots")
}

// WatchSnapshots watches the snapshots.
func (c *Client) WatchSnapshots(ctx context.Context, each func(server.Event[server.SnapshotStatus]) error) error {
	return watch(ctx, c, "/v1/snapshots", each)
}

// GroupSnapshots lists the group snapshots.
func (c *Client) GroupSnapshots(ctx context.Context) ([]server.GroupSnapshotStatus, error) {
	return list[server.GroupSnapshotStatus](ctx, c, "/v1/groupsnapshots")
}

// WatchGroupSnapshots watches the group snapshots.
func (c *Client) WatchGroupSnapshots(
	ctx context.Context, each func(server.Event[server.GroupSnapshotStatus]) error,
) error {
	return watch(ctx, c, "/v1/groupsnapshots", each)
}

// RetrySnapshot ends a snapshot's wait after a failure.
func (c *Client) RetrySnapshot(ctx context.Context, namespace, name string) (out server.Applied, err error) {
	path := "/v1/snapshots/" + url.PathEscape(namespace) + "/" + url.PathEscape(name) + "/retry"
	err = c.call(ctx, request{method: http.MethodPost, path: path}, &out)
	return out, err
}

// RetryGroupSnapshot ends a group snapshot's wait after a failure.
func (c *Client) RetryGroupSnapshot(ctx context.Context, namespace, name string) (out server.Applied, err error) {
	path := "/v1/groupsnapshots/" + url.PathEscape(namespace) + "/" + url.PathEscape(name) + "/retry"
	err = c.call(ctx, request{method: http.MethodPost, path: path}, &out)
	return out, err
}

// DeleteSnapshot deletes a snapshot, or all snapshots of a group. If its deletionPolicy
// is Retain and d.Data is not set, the snapshot stays and the answer's note says where
// it is.
func (c *Client) DeleteSnapshot(ctx context.Context, d server.SnapshotDeletion) (out server.Applied, err error) {
	query := url.Values{"reason": {d.Reason}}
	if d.Data {
		query.Set("data", "true")
	}
	kind := "snapshots"
	if d.Group {
		kind = "groupsnapshots"
	}
	path := "/v1/" + kind + "/" + url.PathEscape(d.Namespace) + "/" + url.PathEscape(d.Name)
	err = c.call(ctx, request{method: http.MethodDelete, path: path, query: query}, &out)
	return out, err
}
