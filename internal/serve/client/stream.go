package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// WatchPods calls each for every event of the pods until ctx ends, each fails or the
// daemon stops (ErrCut). The other Watch methods do the same for their lists.
func (c *Client) WatchPods(ctx context.Context, each func(server.Event[server.PodStatus]) error) error {
	return watch(ctx, c, "/v1/pods", each)
}

// WatchVolumes watches the volumes.
func (c *Client) WatchVolumes(ctx context.Context, each func(server.Event[server.VolumeStatus]) error) error {
	return watch(ctx, c, "/v1/volumes", each)
}

// WatchDrivers watches the drivers.
func (c *Client) WatchDrivers(ctx context.Context, each func(server.Event[server.DriverStatus]) error) error {
	return watch(ctx, c, "/v1/drivers", each)
}

// WatchClaims watches the claims.
func (c *Client) WatchClaims(ctx context.Context, each func(server.Event[server.ClaimStatus]) error) error {
	return watch(ctx, c, "/v1/claims", each)
}

// WatchPersistentVolumes watches the persistent volumes.
func (c *Client) WatchPersistentVolumes(ctx context.Context, each func(server.Event[server.PVStatus]) error) error {
	return watch(ctx, c, "/v1/persistentvolumes", each)
}

func watch[T any](ctx context.Context, c *Client, path string, each func(server.Event[T]) error) error {
	r := request{method: http.MethodGet, path: path, query: url.Values{"watch": {"true"}}}
	err := lines(ctx, c, r, func(e server.Event[T]) (bool, error) { return false, each(e) })
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Goal is what a wait waits for.
type Goal string

// The goals. Verified is Mounted, checked against the kernel now, on storage that
// answers.
const (
	Mounted   Goal = "mounted"
	Verified  Goal = "verified"
	Unmounted Goal = "unmounted"
)

// Wait says which pod to wait for, for what, and how long.
type Wait struct {
	Namespace, Name string
	For             Goal
	Timeout         time.Duration
}

// Wait waits until the goal is reached or the timeout ends, calls progress, if not nil,
// for every change, and returns the pod's last state. Done and TimedOut say how the
// wait ended: a timeout is an answer, not an error.
func (c *Client) Wait(ctx context.Context, w Wait, progress func(server.Progress)) (server.Progress, error) {
	r := request{
		method: http.MethodGet, path: podPath(w.Namespace, w.Name) + "/wait",
		query: url.Values{"for": {string(w.For)}, "timeout": {w.Timeout.String()}},
	}
	var last server.Progress
	err := lines(ctx, c, r, func(p server.Progress) (bool, error) {
		last = p
		if progress != nil {
			progress(p)
		}
		return p.Done || p.TimedOut, nil
	})
	return last, err
}

// Stream calls each for every line of the answer to a GET of path, as lines does. path is
// escaped and may have a query.
func Stream[T any](ctx context.Context, c *Client, path string, each func(T) (last bool, err error)) error {
	return lines(ctx, c, request{method: http.MethodGet, path: path}, each)
}

// lines calls each for every line of a streamed answer until each reports the last one.
func lines[T any](ctx context.Context, c *Client, r request, each func(T) (bool, error)) error {
	body, err := c.open(ctx, r)
	if err != nil {
		return err
	}
	defer body.Close()
	for dec := json.NewDecoder(body); ; {
		var v T
		if err := dec.Decode(&v); err != nil {
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
				return ErrCut
			default:
				return fmt.Errorf("read the stream %s: %w", r.path, err)
			}
		}
		if last, err := each(v); last || err != nil {
			return err
		}
	}
}
