package client

import (
	"context"
	"net/http"
	"net/url"
)

// NamedRequest asks for a named volume.
type NamedRequest struct {
	// Name is the volume's name, or "namespace/claim" for the claim to make.
	Name string `json:"name"`
	// FrontEnd is docker, mount or nomad.
	FrontEnd string `json:"frontEnd"`
	// Options are those of the front end, such as class and size.
	Options map[string]string `json:"options,omitempty"`
	// Standing: the volume stays mounted until it is removed, also across reboots.
	Standing bool `json:"standing,omitempty"`
}

// NamedVolume is a volume that a program outside Kubernetes names.
type NamedVolume struct {
	// Name and FrontEnd are those of its request.
	Name     string `json:"name"`
	FrontEnd string `json:"frontEnd"`
	// Claim and Pod are the objects that represent the volume here, as "namespace/name".
	Claim string `json:"claim"`
	Pod   string `json:"pod"`
	// Mountpoint is the path last given to a user; "" if there are no users.
	Mountpoint string `json:"mountpoint,omitempty"`
	// Holders describes, for people, who had the volume open or mounted at the last check.
	Holders []string `json:"holders,omitempty"`
	// Removing: the volume is being removed.
	Removing bool `json:"removing,omitempty"`
	// Problem says why the volume cannot be used; "" if it can.
	Problem string `json:"problem,omitempty"`
}

// NamedVolumes lists the volumes that Docker, podman, mount(8) and Nomad name.
func (c *Client) NamedVolumes(ctx context.Context) ([]NamedVolume, error) {
	return list[NamedVolume](ctx, c, "/v1/named")
}

// CreateNamed creates a volume and waits for its storage. A repeated call waits for the
// same volume.
func (c *Client) CreateNamed(ctx context.Context, r NamedRequest) (NamedVolume, error) {
	var out NamedVolume
	err := c.Do(ctx, http.MethodPost, "/v1/named", r, &out)
	return out, err
}

// MountNamed mounts a volume and returns the path. The volume stays mounted while the
// kernel shows a mount of it that is not csi-volmgr's own.
func (c *Client) MountNamed(ctx context.Context, name string) (path string, err error) {
	var out mountpoint
	err = c.Do(ctx, http.MethodPost, "/v1/named-mounts/"+url.PathEscape(name), nil, &out)
	return out.Path, err
}

// RemoveNamed removes a volume. If its storage stays, note says where.
func (c *Client) RemoveNamed(ctx context.Context, name string) (note string, err error) {
	var out removal
	err = c.Do(ctx, http.MethodDelete, "/v1/named/"+url.PathEscape(name), nil, &out)
	return out.Note, err
}

type mountpoint struct {
	Path string `json:"path"`
}

type removal struct {
	Note string `json:"note"`
}
