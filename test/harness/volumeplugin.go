package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"
)

// VolumePlugin asks a daemon's volume plugin as Docker and podman do.
type VolumePlugin struct {
	t      *testing.T
	client *http.Client
}

// NewVolumePlugin returns a client of the plugin at a socket.
func NewVolumePlugin(t *testing.T, socket string) *VolumePlugin {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &VolumePlugin{t: t, client: &http.Client{Transport: transport}}
}

// VolumePluginFlags are the flags of a daemon whose plugin listens at a socket.
func VolumePluginFlags(socket string) []string {
	return []string{"--volume-plugin", "--volume-plugin-socket", socket}
}

// PluginAnswer has the fields of all answers.
type PluginAnswer struct {
	Err        string
	Mountpoint string
	Volume     struct{ Name string }
	Volumes    []struct{ Name string }
}

// Ask makes one request. opts are a creation's options; an id is sent with Mount and Unmount.
func (p *VolumePlugin) Ask(ctx context.Context, method, name string, opts map[string]string) (a PluginAnswer, err error) {
	request := map[string]any{"Name": name}
	switch method {
	case "Create":
		request["Opts"] = opts
	case "Mount", "Unmount":
		request["ID"] = "container"
	case "List":
		request = nil
	}
	body, err := json.Marshal(request)
	if err != nil {
		return a, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://plugin/VolumeDriver."+method, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return a, fmt.Errorf("%s %s: %w", method, name, err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return a, fmt.Errorf("%s %s: %w", method, name, err)
	}
	if a.Err != "" {
		return a, fmt.Errorf("%s %s: %w", method, name, errors.New(a.Err))
	}
	return a, nil
}

// Do makes a request that must succeed.
func (p *VolumePlugin) Do(method, name string, opts map[string]string) PluginAnswer {
	p.t.Helper()
	a, err := p.Ask(p.t.Context(), method, name, opts)
	if err != nil {
		p.t.Fatal(err)
	}
	return a
}
