package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	volumes "github.com/csi-volmgr/csi-volmgr/internal/wants/named"
)

// nomadPlugin is the name under which a Nomad client starts this program, from its directory of plugins
// for dynamic host volumes (Nomad 1.10).
const nomadPlugin = "csi-volmgr-nomad"

// nomadVersion is the plugin version that fingerprint returns. Nomad wants three numbers.
const nomadVersion = "1.0.0"

// nomad runs one operation of a host volume plugin; env reads the environment.
func (p *program) nomad(ctx context.Context, args []string, env func(string) string) int {
	if len(args) != 1 {
		_, _ = fmt.Fprintf(p.stderr, "%s: expected fingerprint, create or delete, found %q\n", nomadPlugin, args)
		return exitUsage
	}
	err := p.nomadDo(ctx, args[0], env)
	if err != nil {
		_, _ = fmt.Fprintf(p.stderr, "%s %s: %s\n", nomadPlugin, args[0], p.explainError(err))
		return exitFailed
	}
	return exitDone
}

func (p *program) nomadDo(ctx context.Context, operation string, env func(string) string) error {
	if operation == "fingerprint" {
		return answerJSON(p.stdout, struct {
			Version string `json:"version"`
		}{nomadVersion})
	}
	id := env("DHV_VOLUME_ID")
	if id == "" {
		return errors.New("DHV_VOLUME_ID: found none, want the id of the volume")
	}
	if p.socket = env("VOLMGR_SOCKET"); p.socket == "" {
		p.socket = defaultSocket
	}
	c := p.client()
	defer c.Close()
	err := awaitDaemon(ctx, func(ctx context.Context) error {
		_, err := c.Version(ctx)
		return err
	})
	if err != nil {
		return err
	}
	switch operation {
	case "create":
		return p.nomadCreate(ctx, c, id, env)
	case "delete":
		_, err := c.RemoveNamed(ctx, server.NamedRemoval{
			FrontEnd: volumes.Nomad, Namespace: nomadNamespace(env), Name: nomadName(id),
		})
		if errors.Is(err, server.ErrNotFound) {
			return nil // a run whose answer was lost has deleted it
		}
		return err
	}
	return fmt.Errorf("found operation %q, want fingerprint, create or delete", operation)
}

// daemonPatience is how long an operation waits for the daemon's socket: at a boot Nomad's client may start first, and
// does not ask again for a volume that failed. Nomad gives a plugin a minute.
const daemonPatience = 30 * time.Second

// awaitDaemon asks until a daemon answers, or for daemonPatience. Any answer will do.
func awaitDaemon(ctx context.Context, ask func(context.Context) error) error {
	late := time.NewTimer(daemonPatience)
	defer late.Stop()
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		err := ask(ctx)
		if !errors.Is(err, client.ErrNoDaemon) || errors.Is(err, fs.ErrPermission) {
			return nil // the operation says what is wrong
		}
		select {
		case <-again.C:
		case <-late.C:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func nomadName(id string) string { return volumes.NomadPrefix + id }

// nomadNamespace returns the volume's namespace in Nomad.
func nomadNamespace(env func(string) string) string { return cmp.Or(env("DHV_NAMESPACE"), "default") }

// namedClient is the part of the client that makes host volumes.
type namedClient interface {
	CreateNamed(ctx context.Context, r server.NamedRequest) (server.NamedVolume, error)
	MountNamed(ctx context.Context, frontEnd, name string) (string, error)
	Claims(ctx context.Context) ([]server.ClaimStatus, error)
}

// nomadCreate makes the volume and mounts it until it is deleted. Nomad repeats the call whenever its
// client starts, and gets the same answer.
func (p *program) nomadCreate(ctx context.Context, c namedClient, id string, env func(string) string) error {
	options, most, err := nomadOptions(env)
	if err != nil {
		return err
	}
	v, err := c.CreateNamed(ctx, server.NamedRequest{
		Name: nomadName(id), FrontEnd: volumes.Nomad, Namespace: nomadNamespace(env), Options: options, LimitBytes: most,
		Standing: true,
	})
	if err != nil {
		return err
	}
	path, err := c.MountNamed(ctx, volumes.Nomad, v.Name)
	if err != nil {
		return err
	}
	claims, err := c.Claims(ctx)
	if err != nil {
		return err
	}
	var size int64
	for _, claim := range claims {
		if claim.Namespace+"/"+claim.Name == v.Claim {
			size = max(claim.CapacityBytes, claim.RequestedBytes)
		}
	}
	return answerJSON(p.stdout, struct {
		Path  string `json:"path"`
		Bytes int64  `json:"bytes"`
	}{path, size})
}

// nomadOptions returns the volume's options, which are the parameters of its specification and its least capacity, and
// its largest capacity in bytes; 0 means that there is none.
func nomadOptions(env func(string) string) (options map[string]string, most int64, err error) {
	options = map[string]string{}
	if text := env("DHV_PARAMETERS"); text != "" && text != "null" {
		if err := json.Unmarshal([]byte(text), &options); err != nil {
			return nil, 0, fmt.Errorf("DHV_PARAMETERS: found %.80q, want an object of strings: %w", text, err)
		}
	}
	bytes := map[string]int64{}
	for _, name := range []string{"DHV_CAPACITY_MIN_BYTES", "DHV_CAPACITY_MAX_BYTES"} {
		if text := env(name); text != "" {
			if bytes[name], err = strconv.ParseInt(text, 10, 64); err != nil || bytes[name] < 0 {
				return nil, 0, fmt.Errorf("%s: found %q, want a number of bytes", name, text)
			}
		}
	}
	least, most := bytes["DHV_CAPACITY_MIN_BYTES"], bytes["DHV_CAPACITY_MAX_BYTES"]
	if _, has := options["size"]; !has && least > 0 {
		options["size"] = strconv.FormatInt(least, 10)
	}
	return options, most, nil
}

func answerJSON(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return writeAll(w, string(text)+"\n")
}
