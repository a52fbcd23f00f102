// Package takeover hands the volumes below a root from a kubelet to csi-volmgr, and back.
//
// Owns: the order of adopt and release: who is asked, what is written, and when.
//
// Does not: decide what is taken over or handed back (pkg/handover), or read and
// write a kubelet's files (pkg/handover/disk).
package takeover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/audit"
	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/handover/disk"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// ErrNotHandedOver means that something stands against adopt or release, which
// have changed nothing then.
var ErrNotHandedOver = errors.New("nothing was changed")

// Order is how Adopt and Release are to be done.
type Order struct {
	// Yes: it is done; without, it is only said what would be.
	Yes bool
	// By and Reason go to the audit log. A reason overrules what may be overruled.
	By     audit.By
	Reason string
	// Host is where a kubelet is looked for.
	Host disk.Host
}

// Config is what a Transfer needs; every field is required.
type Config struct {
	Layout   state.Layout
	NodeName string
	Kernel   *mount.Kernel
	Journal  *state.Bolt
	// BootID names this boot of the node.
	BootID string
	Audit  *audit.Log
	// Pods returns what the sources list, once each has spoken.
	Pods func(context.Context) (map[state.PodUID]state.PodWant, error)
	// RegistrationDir holds the drivers' registration sockets.
	RegistrationDir string
	// Client returns how a driver is dialled, all but Name and Endpoint.
	Client func(state.DriverName) csiclient.Config
	Logger *slog.Logger
}

// Transfer hands volumes over, for a daemon that does not run. It is used by one
// goroutine at a time.
type Transfer struct{ c Config }

// New returns a Transfer.
func New(c Config) *Transfer { return &Transfer{c} }

// noKubelet fails while a kubelet runs on the root.
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

// journalOfNow is the journal as a daemon that starts now sees it.
func (t *Transfer) journalOfNow(ctx context.Context) (*manager.Offline, error) {
	journal, err := manager.OpenOffline(ctx, t.c.Journal, t.c.BootID)
	if err != nil {
		return nil, err
	}
	unreadable := journal.Quarantined()
	if ids := slices.Sorted(maps.Keys(unreadable)); len(ids) > 0 {
		return nil, fmt.Errorf("%w: the record of volume %s cannot be read: %s", ErrNotHandedOver, ids[0], unreadable[ids[0]])
	}
	return journal, nil
}

// keeper removes what a kubelet kept of a volume that was taken over from it.
func (t *Transfer) keeper() disk.Keeper { return disk.Keeper{Layout: t.c.Layout, Kernel: t.c.Kernel} }
