package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/csi-volmgr/csi-volmgr/internal/host/holders"
	"github.com/csi-volmgr/csi-volmgr/internal/host/leftover"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Who finds the holders of a volume, by any of its names, or of a path.
func (c *Client) Who(ctx context.Context, volume, path string) (holders.Report, error) {
	var out holders.Report
	q := url.Values{}
	if volume != "" {
		q.Set("volume", volume)
	}
	if path != "" {
		q.Set("path", path)
	}
	err := c.call(ctx, request{method: http.MethodGet, path: "/v1/who", query: q}, &out)
	return out, err
}

// Leftovers lists the files and mounts that no record explains.
func (c *Client) Leftovers(ctx context.Context) ([]leftover.Item, error) {
	return list[leftover.Item](ctx, c, "/v1/leftovers")
}

// GC removes the leftovers that are safe to remove and returns all of them. With lost it also ends uses that no process
// has and whose engine runs.
func (c *Client) GC(ctx context.Context, lost bool) ([]leftover.Item, error) {
	var out server.List[leftover.Item]
	q := url.Values{}
	if lost {
		q.Set("uses", "lost")
	}
	err := c.call(ctx, request{method: http.MethodPost, path: "/v1/gc", query: q}, &out)
	return out.Items, err
}

// Unowned lists what is in drivers' storage and no record of the node names.
func (c *Client) Unowned(ctx context.Context) (server.Unowned, error) {
	return get[server.Unowned](ctx, c, "/v1/storage")
}

// Forget drops the record of the volume that a person calls name.
func (c *Client) Forget(ctx context.Context, name, reason string, mounted bool) (server.Applied, error) {
	var out server.Applied
	q := url.Values{"reason": {reason}, "mounted": {strconv.FormatBool(mounted)}}
	err := c.call(ctx, request{method: http.MethodPost, path: "/v1/forget/" + url.PathEscape(name), query: q}, &out)
	return out, err
}

// ForgetObject drops the record of a claim's volume or of a snapshot.
func (c *Client) ForgetObject(ctx context.Context, f server.Forget) (out server.Applied, err error) {
	path := "/v1/" + f.Kind + "s/" + url.PathEscape(f.Namespace) + "/" + url.PathEscape(f.Name) + "/forget"
	q := url.Values{"reason": {f.Reason}, "gone": {strconv.FormatBool(f.Gone)}}
	err = c.call(ctx, request{method: http.MethodPost, path: path, query: q}, &out)
	return out, err
}

// AcceptRecovery states that no pod uses the mounts without a record, and returns these
// mounts.
func (c *Client) AcceptRecovery(ctx context.Context, reason string) ([]server.Place, error) {
	var out server.List[server.Place]
	q := url.Values{"reason": {reason}}
	err := c.call(ctx, request{method: http.MethodPost, path: "/v1/recovery/accept", query: q}, &out)
	return out.Items, err
}

// Retry ends the pauses of the volume that a person calls name. With a step, the
// failing unmount is made once by that step, and reason says why data not yet written
// back may be lost.
func (c *Client) Retry(
	ctx context.Context, name string, step state.UnmountStep, reason string,
) (server.Applied, error) {
	var out server.Applied
	q := url.Values{"step": {string(step)}, "reason": {reason}}
	err := c.call(ctx, request{method: http.MethodPost, path: "/v1/retry/" + url.PathEscape(name), query: q}, &out)
	return out, err
}

// Draining returns the node's drain.
func (c *Client) Draining(ctx context.Context) (server.Drain, error) {
	return get[server.Drain](ctx, c, "/v1/drain")
}

// Drain starts to drain the node; see the modes.
func (c *Client) Drain(ctx context.Context, mode server.DrainMode, reason string) (server.Drain, error) {
	var out server.Drain
	q := url.Values{"mode": {string(mode)}, "reason": {reason}}
	err := c.call(ctx, request{method: http.MethodPost, path: "/v1/drain", query: q}, &out)
	return out, err
}

// Undrain ends the drain.
func (c *Client) Undrain(ctx context.Context) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/v1/drain"}, nil)
}

// EndEmptying ends a drain of mode DrainEmpty, and no other. It returns the drain that is left.
func (c *Client) EndEmptying(ctx context.Context) (server.Drain, error) {
	var out server.Drain
	q := url.Values{"mode": {string(server.DrainEmpty)}}
	err := c.call(ctx, request{method: http.MethodDelete, path: "/v1/drain", query: q}, &out)
	return out, err
}

// RegisterDriver makes the daemon register the driver at a socket, also after restarts.
func (c *Client) RegisterDriver(ctx context.Context, r server.Registration) (server.Applied, error) {
	var out server.Applied
	q := url.Values{"endpoint": {r.Endpoint}}
	for key, value := range map[string]string{
		"controller": r.Controller.Address, "controllerCA": r.Controller.CA, "controllerCert": r.Controller.Cert,
		"controllerKey": r.Controller.Key,
	} {
		if value != "" {
			q.Set(key, value)
		}
	}
	err := c.call(ctx, request{method: http.MethodPost, path: "/v1/drivers", query: q}, &out)
	return out, err
}

// UnregisterDriver ends a registration made by RegisterDriver.
func (c *Client) UnregisterDriver(ctx context.Context, name string) (server.Applied, error) {
	var out server.Applied
	err := c.call(ctx, request{method: http.MethodDelete, path: "/v1/drivers/" + url.PathEscape(name)}, &out)
	return out, err
}

// ReleaseVolume gives a PersistentVolume free that a claim had which is gone.
func (c *Client) ReleaseVolume(ctx context.Context, r server.Release) (out server.Applied, err error) {
	path := "/v1/persistentvolumes/" + url.PathEscape(r.Volume) + "/release"
	err = c.call(ctx, request{method: http.MethodPost, path: path, query: url.Values{"reason": {r.Reason}}}, &out)
	return out, err
}

// SetReclaim sets the reclaim policy of the volume that csi-volmgr made for a claim.
func (c *Client) SetReclaim(ctx context.Context, r server.Reclaim) (out server.Applied, err error) {
	path := "/v1/claims/" + url.PathEscape(r.Namespace) + "/" + url.PathEscape(r.Claim) + "/reclaim-policy"
	err = c.call(ctx, request{method: http.MethodPut, path: path, query: url.Values{"policy": {r.Policy}}}, &out)
	return out, err
}
