// Package away calls the verbs of built-in kinds in helper processes, which the program can
// leave behind while storage hangs.
//
// Owns: all that a helper process serves, the kinds whose verbs run there, and what an
// error of a built-in kind is about.
//
// Does not: start helpers or bound them; isolate does.
package away

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/freeze"
	"github.com/csi-volmgr/csi-volmgr/pkg/fsgroup"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/hostpath"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/image"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/local"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/program"
	"github.com/csi-volmgr/csi-volmgr/pkg/isolate"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// callVerb is the name of the helper's call of a verb.
const callVerb = "verb"

// Serve serves the calls of the pool that started this process, until that is gone. The
// process is to end when Serve returns.
func Serve(ctx context.Context) error { return isolate.Serve(ctx, Service()) }

// Service returns every call that a helper serves. A pool without a command serves them
// in goroutines.
func Service() isolate.Service {
	s := mount.Service()
	s.Handlers = maps.Clone(s.Handlers)
	s.Handlers[callVerb] = isolate.Handle(doVerb)
	maps.Copy(s.Handlers, fsgroup.Helper().Handlers)
	freezes := freeze.Helper()
	maps.Copy(s.Handlers, freezes.Handlers)
	images := image.Helper()
	maps.Copy(s.Handlers, images.Handlers)
	s.Errors = slices.Concat(s.Errors, images.Errors, freezes.Errors)
	s.Memory = images.Memory
	return s
}

// Config is what a Driver needs; every field is required but Allow.
type Config struct {
	// Kind is hostPath or local.
	Kind state.DriverName
	// Allow lists the directories at or below which its volumes may be.
	Allow   []string
	Layout  state.Layout
	Helpers *isolate.Pool
}

// New returns the driver of a built-in kind that asks storage by more than a mount and an
// unmount. Its verbs are called in a helper.
func New(c Config) manager.Driver { return driver{c} }

// inHelper makes the driver of a kind in a helper.
func inHelper(r verbRequest) (manager.Driver, error) {
	kernel := mount.New(r.Root).AtOnce()
	layout := state.Layout{Root: r.Root}
	switch r.Kind {
	case hostpath.Kind:
		return hostpath.New(hostpath.Config{Layout: layout, Kernel: kernel, Allow: r.Allow}), nil
	case local.Kind:
		return local.New(local.Config{Layout: layout, Kernel: kernel, Allow: r.Allow, Run: new(program.Runner).Run}), nil
	}
	return nil, fmt.Errorf("no helper for kind %s", r.Kind)
}
