package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// NamedVolumes lists the volumes that programs outside Kubernetes name.
func (c *Client) NamedVolumes(ctx context.Context) ([]server.NamedVolume, error) {
	return list[server.NamedVolume](ctx, c, "/v1/named")
}

// NamedVolume returns one of them, with its current holders.
func (c *Client) NamedVolume(ctx context.Context, name string) (server.NamedVolume, error) {
	return get[server.NamedVolume](ctx, c, "/v1/named/"+url.PathEscape(name))
}

// CreateNamed creates a volume and waits for its storage. A repeated call waits for the
// same volume.
func (c *Client) CreateNamed(ctx context.Context, r server.NamedRequest) (out server.NamedVolume, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return out, fmt.Errorf("create volume %s: %w", r.Name, err)
	}
	err = c.call(ctx, request{method: http.MethodPost, path: "/v1/named", body: body}, &out)
	return out, err
}

// ChangeNamed changes options of a volume: its size, owner, mode and reclaim policy.
func (c *Client) ChangeNamed(
	ctx context.Context, name string, change server.NamedChange,
) (out server.NamedVolume, err error) {
	body, err := json.Marshal(change)
	if err != nil {
		return out, fmt.Errorf("change volume %s: %w", name, err)
	}
	path := "/v1/named/" + url.PathEscape(name)
	err = c.call(ctx, request{method: http.MethodPatch, path: path, body: body}, &out)
	return out, err
}

// MountNamed mounts a volume for a front end ("" is the operator) and returns the path. The
// volume stays mounted while the kernel shows a mount of it that is not csi-volmgr's own.
func (c *Client) MountNamed(ctx context.Context, frontEnd, name string) (path string, err error) {
	var m server.NamedMount
	err = c.call(ctx, request{
		method: http.MethodPost, path: "/v1/named-mounts/" + url.PathEscape(name), query: frontEndQuery(frontEnd),
	}, &m)
	return m.Path, err
}

// RemoveNamed removes a volume for a front end ("" is the operator). If its storage stays,
// note says where.
func (c *Client) RemoveNamed(ctx context.Context, r server.NamedRemoval) (note string, err error) {
	var out server.Removed
	query := frontEndQuery(r.FrontEnd)
	if r.Namespace != "" {
		query.Set("namespace", r.Namespace)
	}
	err = c.call(ctx, request{
		method: http.MethodDelete, path: "/v1/named/" + url.PathEscape(r.Name), query: query,
	}, &out)
	return out.Note, err
}

func frontEndQuery(frontEnd string) url.Values {
	if frontEnd == "" {
		return url.Values{}
	}
	return url.Values{"frontEnd": {frontEnd}}
}

// KeptNamed lists the data of removed volumes that is kept.
func (c *Client) KeptNamed(ctx context.Context) ([]server.NamedVolume, error) {
	return list[server.NamedVolume](ctx, c, "/v1/named-kept")
}

// RestoreNamed makes a volume again from the data of a removed one. as is its name; "" is the removed one's.
func (c *Client) RestoreNamed(ctx context.Context, name, as string) (out server.NamedVolume, err error) {
	path := "/v1/named-restores/" + url.PathEscape(name)
	if as != "" {
		path += "?as=" + url.QueryEscape(as)
	}
	err = c.call(ctx, request{method: http.MethodPost, path: path}, &out)
	return out, err
}
