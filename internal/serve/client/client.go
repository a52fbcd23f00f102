// Package client is the Go client of the node API: one method for each path of
// internal/serve/server, over the daemon's unix socket.
//
// Methods return an answer that is not 2xx as a *[server.Error]; errors.Is matches it
// with ErrNotFound and the other errors of package server. Package pkg/client, for programs
// of others, is Do and Stream with types of its own.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/stats"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	// dialTimeout bounds the connect to the socket, which is local.
	dialTimeout = 5 * time.Second
	// maxIdle is how many connections are kept between requests, so that a caller with
	// that many concurrent requests connects once for each and not once per request.
	maxIdle = 64
	// idleTimeout is when the client closes an unused connection. The daemon closes it
	// after 30 seconds, and a request that races with that is lost.
	idleTimeout = 20 * time.Second
	// maxAnswer bounds an answer that is not a stream (bytes).
	maxAnswer = 256 << 20
)

// ErrNoDaemon means that no daemon answers at the socket.
var ErrNoDaemon = errors.New("no daemon answers")

// ErrCut means that a stream ended before its last line, as it does when the daemon
// stops.
var ErrCut = errors.New("the daemon ended the stream")

// Client calls the node API of one daemon. It is safe for concurrent use.
type Client struct {
	socket string
	http   *http.Client
}

// New returns a client of the daemon at socket. It connects on the first call.
func New(socket string) *Client {
	dialer := net.Dialer{Timeout: dialTimeout}
	return &Client{
		socket: socket,
		http: &http.Client{
			Transport: &http.Transport{
				DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
					return dialer.DialContext(ctx, "unix", socket)
				},
				DisableCompression:  true,
				MaxIdleConnsPerHost: maxIdle,
				IdleConnTimeout:     idleTimeout,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Transport returns a transport that sends every request to the daemon, whatever its
// host.
func (c *Client) Transport() http.RoundTripper { return c.http.Transport }

// Version returns the daemon's version and node.
func (c *Client) Version(ctx context.Context) (server.Version, error) {
	return get[server.Version](ctx, c, "/v1/version")
}

// Pods lists the pods known on the node.
func (c *Client) Pods(ctx context.Context) ([]server.PodStatus, error) {
	return list[server.PodStatus](ctx, c, "/v1/pods")
}

// Pod returns the pod with a name.
func (c *Client) Pod(ctx context.Context, ns, name string) (server.PodStatus, error) {
	return get[server.PodStatus](ctx, c, podPath(ns, name))
}

// Mounts lists a pod's mounted volumes as its container runtime needs them; if name is
// "", it lists those of all pods.
func (c *Client) Mounts(ctx context.Context, ns, name string) ([]server.Mount, error) {
	if name == "" {
		return list[server.Mount](ctx, c, "/v1/mounts")
	}
	return list[server.Mount](ctx, c, podPath(ns, name)+"/mounts")
}

// ContainerMounts lists the mounts to give one container of a pod, and creates missing
// subPaths.
func (c *Client) ContainerMounts(ctx context.Context, of server.Container) ([]server.ContainerMount, error) {
	body, err := json.Marshal(of)
	if err != nil {
		return nil, err
	}
	var out server.List[server.ContainerMount]
	path := podPath(of.Namespace, of.Pod) + "/containers/" + url.PathEscape(of.Name) + "/mounts"
	err = c.call(ctx, request{method: http.MethodPost, path: path, body: body}, &out)
	return out.Items, err
}

// Volumes lists the volumes on the node.
func (c *Client) Volumes(ctx context.Context) ([]server.VolumeStatus, error) {
	return list[server.VolumeStatus](ctx, c, "/v1/volumes")
}

// Volume returns the volume with an id.
func (c *Client) Volume(ctx context.Context, id state.VolumeID) (server.VolumeStatus, error) {
	return get[server.VolumeStatus](ctx, c, "/v1/volumes/"+url.PathEscape(string(id)))
}

// Drivers lists the drivers known on the node.
func (c *Client) Drivers(ctx context.Context) ([]server.DriverStatus, error) {
	return list[server.DriverStatus](ctx, c, "/v1/drivers")
}

// Claims lists the claims known on the node.
func (c *Client) Claims(ctx context.Context) ([]server.ClaimStatus, error) {
	return list[server.ClaimStatus](ctx, c, "/v1/claims")
}

// PersistentVolumes lists the persistent volumes known on the node.
func (c *Client) PersistentVolumes(ctx context.Context) ([]server.PVStatus, error) {
	return list[server.PVStatus](ctx, c, "/v1/persistentvolumes")
}

// Objects lists the sources' objects of a kind ("Secret").
func (c *Client) Objects(ctx context.Context, kind string) ([]server.Object, error) {
	return list[server.Object](ctx, c, "/v1/objects/"+url.PathEscape(kind))
}

// Stats lists how full and how healthy volumes and drivers are.
func (c *Client) Stats(ctx context.Context) ([]stats.Status, error) {
	return list[stats.Status](ctx, c, "/v1/stats")
}

// Problems lists what the daemon's sources could not read.
func (c *Client) Problems(ctx context.Context) ([]server.Problem, error) {
	return list[server.Problem](ctx, c, "/v1/problems")
}

// Sockets lists the registration sockets.
func (c *Client) Sockets(ctx context.Context) ([]server.SocketStatus, error) {
	return list[server.SocketStatus](ctx, c, "/v1/sockets")
}

// Explain explains the state of the object name of a kind (pod, pvc, snapshot,
// groupsnapshot, volume, driver).
func (c *Client) Explain(ctx context.Context, kind, name string) (server.Explanation, error) {
	return get[server.Explanation](ctx, c, "/v1/explain/"+url.PathEscape(kind)+"/"+url.PathEscape(name))
}

// Trace returns the last calls of a volume, or of all volumes of a pod
// ("namespace/name"), by start time.
func (c *Client) Trace(ctx context.Context, kind, name string) ([]server.EndedCall, error) {
	return list[server.EndedCall](ctx, c, "/v1/trace/"+url.PathEscape(kind)+"/"+url.PathEscape(name))
}

// Traces returns the last calls of all volumes, by start time.
func (c *Client) Traces(ctx context.Context) ([]server.EndedCall, error) {
	return list[server.EndedCall](ctx, c, "/v1/trace")
}

// Metrics returns the daemon's metrics in Prometheus' text format.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) {
	body, err := c.open(ctx, request{method: http.MethodGet, path: "/metrics"})
	if err != nil {
		return nil, err
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the daemon's metrics: %w", err)
	}
	return data, nil
}

// Apply adds or updates all objects of a manifest, or none.
func (c *Client) Apply(ctx context.Context, m server.Manifest) ([]server.Applied, error) {
	return c.post(ctx, "/v1/apply", m)
}

// Check returns the error with which Apply would refuse a manifest, as far as that is
// known beforehand. It changes nothing.
func (c *Client) Check(ctx context.Context, m server.Manifest) error {
	_, err := c.post(ctx, "/v1/check", m)
	return err
}

// Withdraw removes a manifest's objects from the wanted ones, except claims and
// snapshots.
func (c *Client) Withdraw(ctx context.Context, m server.Manifest) ([]server.Applied, error) {
	return c.post(ctx, "/v1/withdraw", m)
}

// DeletePod removes a pod. The caller states with it that the pod's containers have
// stopped.
func (c *Client) DeletePod(ctx context.Context, ns, name string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: podPath(ns, name)}, nil)
}

// DeleteClaim deletes a claim and its data. If the volume's reclaimPolicy is Retain and
// d.Data is not set, the volume stays and the answer's note says where it is.
func (c *Client) DeleteClaim(ctx context.Context, d server.ClaimDeletion) (out server.Applied, err error) {
	query := url.Values{"reason": {d.Reason}}
	if d.Data {
		query.Set("data", "true")
	}
	path := "/v1/claims/" + url.PathEscape(d.Namespace) + "/" + url.PathEscape(d.Name)
	err = c.call(ctx, request{method: http.MethodDelete, path: path, query: query}, &out)
	return out, err
}

func podPath(ns, name string) string {
	return "/v1/pods/" + url.PathEscape(ns) + "/" + url.PathEscape(name)
}

func get[T any](ctx context.Context, c *Client, path string) (T, error) {
	var out T
	err := c.call(ctx, request{method: http.MethodGet, path: path}, &out)
	return out, err
}

func list[T any](ctx context.Context, c *Client, path string) ([]T, error) {
	l, err := get[server.List[T]](ctx, c, path)
	return l.Items, err
}

func (c *Client) post(ctx context.Context, path string, m server.Manifest) ([]server.Applied, error) {
	var out server.List[server.Applied]
	r := request{method: http.MethodPost, path: path, query: url.Values{"file": {m.Name}}, body: m.Data}
	if m.SkipUnknown {
		r.query.Set("skipUnknown", "true")
	}
	err := c.call(ctx, r, &out)
	return out.Items, err
}

type request struct {
	method, path string // path is escaped
	query        url.Values
	body         []byte
}

// Do sends a request and passes on its answer: it copies the body to out if out is an
// io.Writer, decodes it into out otherwise, and drops it if out is nil. path is escaped and
// may have a query. The other methods are Do with the types of package server.
func (c *Client) Do(ctx context.Context, method, path string, body []byte, out any) error {
	return c.call(ctx, request{method: method, path: path, body: body}, out)
}

// call is Do for a request whose query is not encoded yet.
func (c *Client) call(ctx context.Context, r request, out any) error {
	body, err := c.open(ctx, r)
	if err != nil {
		return err
	}
	defer body.Close()
	if out == nil {
		out = io.Discard // what is read to its end leaves a connection for the next request
	}
	if w, ok := out.(io.Writer); ok {
		if _, err := io.Copy(w, body); err != nil {
			return fmt.Errorf("read the daemon's answer to %s %s: %w", r.method, r.path, err)
		}
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the daemon's answer to %s %s: %w", r.method, r.path, err)
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("decode the daemon's answer to %s %s: %w", r.method, r.path, err)
	}
	return nil
}

// open sends a request and returns the body of a 2xx answer.
func (c *Client) open(ctx context.Context, r request) (io.ReadCloser, error) {
	// The host is only a placeholder: every connection goes to the socket.
	target := "http://csi-volmgr" + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.requestError(ctx, err)
	}
	if resp.StatusCode/100 == 2 {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	e := &server.Error{Status: resp.StatusCode}
	if err != nil || json.Unmarshal(data, e) != nil || e.Message == "" {
		return nil, fmt.Errorf("%s %s: the daemon answered %s: %s", r.method, r.path, resp.Status,
			strings.TrimSpace(string(data)))
	}
	return nil, e
}

// requestError explains a request that got no answer: ErrNoDaemon if the connect
// failed.
func (c *Client) requestError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "dial" {
		return fmt.Errorf("ask the daemon at %s: %w", c.socket, err)
	}
	return fmt.Errorf("%w at %s: %w", ErrNoDaemon, c.socket, op.Err)
}
