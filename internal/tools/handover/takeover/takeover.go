// Package takeover transfers the volumes below a root from a kubelet to csi-volmgr, and back.
//
// Owns: the order of adopt and release: whom to ask, what to write, and when.
//
// Does not: decide what is taken over or handed back (internal/tools/handover), or read and write a kubelet's
// files (internal/tools/handover/disk).
package takeover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/tools/handover/disk"
	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// ErrNotHandedOver means that an obstacle prevented adopt or release, and nothing was changed.
var ErrNotHandedOver = errors.New("nothing was changed")

// Order contains the options of Adopt and Release.
type Order struct {
	// Yes means to do it; otherwise they only report what they would do.
	Yes bool
	// By and Reason go to the audit log. A reason overrules the overrulable refusals.
	By     audit.By
	Reason string
	// Host is where to look for a kubelet.
	Host disk.Host
}

// Config configures a Transfer; every field is required.
type Config struct {
	Layout   state.Layout
	NodeName string
	Kernel   *mount.Kernel
	Journal  *journal.Bolt
	// BootID identifies this boot of the node.
	BootID string
	Audit  *audit.Log
	// Pods returns all pods that the sources list, after each source has spoken.
	Pods func(context.Context) (map[state.PodUID]state.PodWant, error)
	// ContainersRan ends an operator's word that no container runs on this node.
	ContainersRan func(context.Context) error
	// RegistrationDir contains the drivers' registration sockets.
	RegistrationDir string
	// Client returns the configuration for dialling a driver, without Name and Endpoint.
	Client func(state.DriverName) csiclient.Config
	Logger *slog.Logger
}

// Transfer transfers volumes while no daemon runs. Only one goroutine at a time may use it.
type Transfer struct{ c Config }

// New returns a Transfer.
func New(c Config) *Transfer { return &Transfer{c} }

// noKubelet returns an error if a kubelet runs on the root.
func (t *Transfer) noKubelet(host disk.Host) error {
	what, err := host.Kubelet(t.c.Layout.Root)
	if err == nil && what != "" {
		err = fmt.Errorf("%w: %s: stop it first, and see that nothing starts it again", disk.ErrKubelet, what)
	}
	if err != nil {
		return fmt.Errorf("hand over root directory %s: %w", t.c.Layout.Root, err)
	}
	return nil
}

// openJournal opens the journal as a daemon that starts now would see it.
func (t *Transfer) openJournal(ctx context.Context) (*manager.Offline, error) {
	opened, err := manager.OpenOffline(ctx, t.c.Journal, t.c.BootID)
	if err != nil {
		return nil, err
	}
	unreadable := opened.Quarantined()
	if ids := slices.Sorted(maps.Keys(unreadable)); len(ids) > 0 {
		return nil, fmt.Errorf("%w: the record of volume %s cannot be read: %s", ErrNotHandedOver, ids[0], unreadable[ids[0]])
	}
	return opened, nil
}

// keeper returns the Keeper for this root.
func (t *Transfer) keeper() disk.Keeper { return disk.Keeper{Layout: t.c.Layout, Kernel: t.c.Kernel} }
