// Package away calls the verbs of built-in kinds in helper processes, which the program
// can leave behind when storage hangs.
//
// Owns: the calls that a helper process serves, the kinds whose verbs run there, and
// the reason code for an error of a built-in kind.
//
// Does not: start or limit helpers; isolate does.
package away

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/internal/host/freeze"
	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/disk"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/fc"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/fsgroup"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/hostpath"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/iscsi"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/local"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/poddir"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/program"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/subpath"
	"github.com/csi-volmgr/csi-volmgr/internal/localdriver"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// callVerb is the name of the helper's call for a verb.
const callVerb = "verb"

// Serve serves the calls of the pool that started this process until that pool is gone.
// The process must exit when Serve returns.
func Serve(ctx context.Context) error { return isolate.Serve(ctx, Service()) }

// Service returns every call that a helper serves. A pool without a Command serves them
// on goroutines.
func Service() isolate.Service {
	s := mount.Service()
	s.Handlers = maps.Clone(s.Handlers)
	s.Handlers[callVerb] = isolate.Handle(doVerb)
	s.Handlers[callHostPath] = isolate.Handle(doHostPath)
	maps.Copy(s.Handlers, fsgroup.Helper().Handlers)
	maps.Copy(s.Handlers, localdriver.Helper().Handlers)
	freezes := freeze.Helper()
	maps.Copy(s.Handlers, freezes.Handlers)
	images := image.Helper()
	maps.Copy(s.Handlers, images.Handlers)
	parts := subpath.Helper()
	maps.Copy(s.Handlers, parts.Handlers)
	s.Errors = slices.Concat(s.Errors, images.Errors, freezes.Errors, parts.Errors)
	s.Memory = images.Memory
	return s
}

// Config configures a driver. Kind, Layout and Helpers are required.
type Config struct {
	// Kind is hostPath, local, iscsi or fc.
	Kind state.DriverName
	// Allow lists the directories at or below which volumes of the kinds hostPath and
	// local may be.
	Allow   []string
	Layout  state.Layout
	Helpers *isolate.Pool
	// Volumes returns the journal's records; required for iscsi and fc.
	Volumes func() []state.Volume
	// Secret reads the secret of a volume; required for iscsi.
	Secret func(context.Context, state.SecretRef) (map[string]string, error)
	// Logger takes what a verb says besides its result; required for iscsi.
	Logger *slog.Logger
}

// New returns the driver of a built-in kind whose verbs access storage in more ways
// than mounting and unmounting. It calls them in a helper.
func New(c Config) *Driver { return &Driver{c: c} }

// newInHelper returns the verbs of a kind, for use in a helper. warn takes what a verb
// says besides its result.
func newInHelper(r verbRequest, warn func(message string, args ...any)) (poddir.Verbs, error) {
	kernel := mount.New(r.Root).Synchronous()
	layout := state.Layout{Root: r.Root}
	run := new(program.Runner).Run
	disks := disk.Stager{Layout: layout, Kernel: kernel, Host: disk.NewHost(run)}
	volumes := func() []state.Volume { return r.Given.Volumes }
	switch r.Kind {
	case hostpath.Kind:
		return hostpath.New(hostpath.Config{Layout: layout, Kernel: kernel, Allow: r.Allow}), nil
	case local.Kind:
		return local.New(local.Config{Layout: layout, Kernel: kernel, Allow: r.Allow, Run: run}), nil
	case fc.Kind:
		return fc.New(fc.Config{Stager: disks, Volumes: volumes}), nil
	case iscsi.Kind:
		return iscsi.New(iscsi.Config{
			Stager: disks, Volumes: volumes, Warn: warn,
			Secret: func(context.Context, state.SecretRef) (map[string]string, error) { return r.Given.Secret, nil },
		}), nil
	}
	return nil, fmt.Errorf("no helper for kind %s", r.Kind)
}
