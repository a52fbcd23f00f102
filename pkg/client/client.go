package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	api "github.com/csi-volmgr/csi-volmgr/internal/serve/client"
)

// Client calls the API of one daemon.
type Client struct {
	api *api.Client
}

// New returns a client of the daemon at a unix socket, such as
// /run/csi-volmgr/csi-volmgr.sock. It connects with the first request.
func New(socket string) *Client { return &Client{api: api.New(socket)} }

// Close closes the connections that no request uses. The client stays usable.
func (c *Client) Close() { c.api.Close() }

// Do makes any request of the API. path is escaped and may have a query:
// "/v1/drain?mode=hold". in is the body: nil for none, a []byte as it is (a manifest), any
// other value as JSON. out is where the answer goes: an [io.Writer] gets its bytes as they
// arrive, which serves watches and metrics; any other value is decoded from JSON; nil drops
// it. A refusal is an *[Error].
func (c *Client) Do(ctx context.Context, method, path string, in, out any) error {
	body, raw := in.([]byte)
	if in != nil && !raw {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("encode the body of %s %s: %w", method, path, err)
		}
	}
	return refusal(c.api.Do(ctx, method, path, body, out))
}

// Version returns the daemon's version and node.
func (c *Client) Version(ctx context.Context) (Version, error) {
	return get[Version](ctx, c, "/v1/version")
}

// Apply adds or updates all objects of a manifest, or none. The manifest is YAML or JSON,
// one or more documents; name is its name in messages.
func (c *Client) Apply(ctx context.Context, name string, manifest []byte) ([]Applied, error) {
	return items[Applied](ctx, c, http.MethodPost, named("/v1/apply", name), manifest)
}

// Withdraw removes a manifest's objects from the wanted ones, except claims and snapshots.
// With a pod, the caller states that its containers have stopped.
func (c *Client) Withdraw(ctx context.Context, name string, manifest []byte) ([]Applied, error) {
	return items[Applied](ctx, c, http.MethodPost, named("/v1/withdraw", name), manifest)
}

// Pods lists the pods that a source wants and the pods that are being cleaned up.
func (c *Client) Pods(ctx context.Context) ([]PodStatus, error) {
	return list[PodStatus](ctx, c, "/v1/pods")
}

// Pod returns one pod; the error is ErrNotFound if the daemon knows none of that name.
func (c *Client) Pod(ctx context.Context, namespace, name string) (PodStatus, error) {
	return get[PodStatus](ctx, c, podPath(namespace, name))
}

// Volumes lists every volume on the node.
func (c *Client) Volumes(ctx context.Context) ([]VolumeStatus, error) {
	return list[VolumeStatus](ctx, c, "/v1/volumes")
}

// Claims lists the PersistentVolumeClaims that the daemon knows.
func (c *Client) Claims(ctx context.Context) ([]ClaimStatus, error) {
	return list[ClaimStatus](ctx, c, "/v1/claims")
}

// Drivers lists the CSI drivers and the built-in kinds.
func (c *Client) Drivers(ctx context.Context) ([]DriverStatus, error) {
	return list[DriverStatus](ctx, c, "/v1/drivers")
}

// Problems lists the objects that the daemon could not read, and those that are stuck.
func (c *Client) Problems(ctx context.Context) ([]Problem, error) {
	return list[Problem](ctx, c, "/v1/problems")
}

// Explain says why an object is not as wanted. kind is pod, pvc, snapshot, groupsnapshot,
// volume or driver; name is "namespace/name" for those that have a namespace. An unknown
// name is explained, too: the verdict is unknown.
func (c *Client) Explain(ctx context.Context, kind, name string) (Explanation, error) {
	return get[Explanation](ctx, c, "/v1/explain/"+url.PathEscape(kind)+"/"+url.PathEscape(name))
}

// ContainerMounts lists what the container runtime has to mount into one container of a
// pod whose volumes are mounted, and makes and binds its subPaths. A repeated request
// changes nothing.
func (c *Client) ContainerMounts(
	ctx context.Context, namespace, pod, container string, has RuntimeFeatures,
) ([]ContainerMount, error) {
	path := podPath(namespace, pod) + "/containers/" + url.PathEscape(container) + "/mounts"
	return items[ContainerMount](ctx, c, http.MethodPost, path, has)
}

func podPath(namespace, name string) string {
	return "/v1/pods/" + url.PathEscape(namespace) + "/" + url.PathEscape(name)
}

// named adds the name of a manifest to the path of its request.
func named(path, manifest string) string { return path + "?file=" + url.QueryEscape(manifest) }

func get[T any](ctx context.Context, c *Client, path string) (T, error) {
	var out T
	err := c.Do(ctx, http.MethodGet, path, nil, &out)
	return out, err
}

func list[T any](ctx context.Context, c *Client, path string) ([]T, error) {
	return items[T](ctx, c, http.MethodGet, path, nil)
}

// items makes a request whose answer is a list.
func items[T any](ctx context.Context, c *Client, method, path string, in any) ([]T, error) {
	var out itemsOf[T]
	err := c.Do(ctx, method, path, in, &out)
	return out.Items, err
}

type itemsOf[T any] struct {
	Items []T `json:"items"`
}
