package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/audit"
	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/handover"
	"github.com/csi-volmgr/csi-volmgr/pkg/handover/disk"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/registration"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	// sourcesTime is how long sources may take to tell what they have, and
	// driversTime how long drivers may, of which some may not run.
	sourcesTime = time.Minute
	driversTime = 10 * time.Second
)

// ErrNotHandedOver means that something stands against adopt or release, which
// have changed nothing then.
var ErrNotHandedOver = errors.New("nothing was changed")

// Handover is how Adopt and Release are to be done.
type Handover struct {
	// Yes: it is done; without, it is only said what would be.
	Yes bool
	// By and Reason go to the audit log. A reason overrules what may be overruled.
	By     audit.By
	Reason string
	// Host is where a kubelet is looked for.
	Host disk.Host
}

// Adopt takes over what a kubelet left below the root: it has records of it in
// the journal, all or none, and nothing is mounted, unmounted or asked of a
// driver but what it can do. It is for a Node that is not run; with
// [ErrNotHandedOver] what it returns says why.
func (n *Node) Adopt(ctx context.Context, h Handover) (handover.Takeover, error) {
	if err := n.noKubelet(h.Host); err != nil {
		return handover.Takeover{}, err
	}
	pods, err := n.hearSources(ctx)
	if err != nil {
		return handover.Takeover{}, err
	}
	journal, err := n.journalOfNow(ctx)
	if err != nil {
		return handover.Takeover{}, err
	}
	found, err := disk.Read(ctx, n.cfg.Root, n.kernel)
	if err != nil {
		return handover.Takeover{}, err
	}
	t := handover.Adopt(handover.Input{
		Layout: n.layout, Disk: found, Pods: pods, Journal: journal.Volumes(),
		Drivers: n.askDrivers(ctx),
	})
	if against := handover.Against(t.Refusals, h.Reason); against != "" {
		return t, fmt.Errorf("adopt the volumes below %s: %w: %s", n.cfg.Root, ErrNotHandedOver, against)
	}
	if !h.Yes || len(t.Records)+len(t.Empty) == 0 {
		return t, nil
	}
	act := audit.Act{By: h.By, Verb: "adopt", Object: n.cfg.Root, Reason: h.Reason, Detail: overruled(t.Refusals)}
	return t, n.audit.Do(act, func() (string, error) {
		ctx := context.WithoutCancel(ctx) // a moment's work, which is done or not
		if err := n.adopt(ctx, h, journal, t); err != nil {
			return "", err
		}
		return fmt.Sprintf("%d records", len(t.Records)), nil
	})
}

// adopt commits the records.
func (n *Node) adopt(ctx context.Context, h Handover, journal *manager.Offline, t handover.Takeover) error {
	if err := n.noKubelet(h.Host); err != nil { // it may have been started meanwhile
		return err
	}
	batch := map[state.VolumeID]*state.Volume{}
	for id, v := range t.Records {
		batch[id] = &v
	}
	if err := journal.Commit(ctx, batch); err != nil {
		return err
	}
	for _, dir := range t.Empty {
		if err := n.keeper().Empty(ctx, dir); err != nil {
			n.log.Warn("an empty staging directory stays", "path", dir, "err", err)
		}
	}
	return nil
}

// overruled lists what a reason overrules, for the audit log.
func overruled(refusals []handover.Refusal) string {
	var all []string
	for _, r := range refusals {
		all = append(all, r.Path)
	}
	return strings.Join(all, " ")
}

// noKubelet fails while a kubelet runs on the root.
func (n *Node) noKubelet(h disk.Host) error {
	what, err := h.Kubelet(n.cfg.Root)
	if err == nil && what != "" {
		err = fmt.Errorf("%w: %s: stop it first, and see that nothing starts it again", ErrKubelet, what)
	}
	if err != nil {
		return fmt.Errorf("hand over root directory %s: %w", n.cfg.Root, err)
	}
	return nil
}

// journalOfNow is the journal as a daemon that starts now sees it.
func (n *Node) journalOfNow(ctx context.Context) (*manager.Offline, error) {
	journal, err := manager.OpenOffline(ctx, n.journal, n.bootID)
	if err != nil {
		return nil, err
	}
	unreadable := journal.Quarantined()
	if ids := slices.Sorted(maps.Keys(unreadable)); len(ids) > 0 {
		return nil, fmt.Errorf("%w: the record of volume %s cannot be read: %s", ErrNotHandedOver, ids[0], unreadable[ids[0]])
	}
	return journal, nil
}

// hearSources returns the pods that the sources list, once each has spoken.
// Nothing is made of what they say.
func (n *Node) hearSources(ctx context.Context) (map[state.PodUID]state.PodWant, error) {
	ctx, cancel := context.WithTimeout(ctx, sourcesTime)
	defer cancel()
	if err := n.showOwn(ctx); err != nil {
		return nil, err
	}
	heard, end := context.WithCancel(ctx)
	defer end()
	parts := []func(context.Context) error{n.runSources, func(ctx context.Context) error { return n.untilHeard(ctx, end) }}
	if n.cfg.Cluster != nil {
		parts = append(parts, n.kube.Run)
	}
	if err := runAll(heard, parts); err != nil {
		return nil, fmt.Errorf("learn which volumes are wanted: %w", err)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("learn which volumes are wanted: sources %s have not told all within %v: %w",
			strings.Join(n.heard.Silent(), ", "), sourcesTime, context.Cause(ctx))
	}
	return n.catalog.Wants(), nil
}

// showOwn tells the volumes that csi-volmgr made itself, as they are in the journal.
func (n *Node) showOwn(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return runAll(ctx, []func(context.Context) error{n.controller.Run, func(ctx context.Context) error {
		select {
		case <-n.controller.Loaded():
		case <-ctx.Done():
			return ctx.Err()
		}
		defer cancel() // it is to make and delete nothing
		return n.made.Show()
	}})
}

// untilHeard calls end once every source has spoken and what pods name is known.
func (n *Node) untilHeard(ctx context.Context, end func()) error {
	for {
		changed := n.changed.next()
		if len(n.heard.Silent()) == 0 && !n.catalog.Asking() {
			end()
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// askDrivers returns what those drivers can do that are registered and answer.
func (n *Node) askDrivers(ctx context.Context) map[state.DriverName]handover.Abilities {
	ctx, cancel := context.WithTimeout(ctx, driversTime)
	defer cancel()
	a := &asked{n: n, can: map[state.DriverName]handover.Abilities{}}
	// As one beside a kubelet, so that no registrar is told anything.
	w := registration.New(registration.Config{Dir: n.cfg.RegistrationDir, Shared: true, Handler: a, Logger: n.log})
	err := runAll(ctx, []func(context.Context) error{w.Run, func(ctx context.Context) error {
		defer cancel()
		select {
		case <-w.Synced():
		case <-ctx.Done():
		}
		return nil
	}})
	if err != nil {
		n.log.Warn("drivers cannot be asked what they can do", "err", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.can)
}

// asked notes what drivers can do (registration.Handler).
type asked struct {
	n   *Node
	mu  sync.Mutex // guards can
	can map[state.DriverName]handover.Abilities
}

// Up asks the driver and is done with it.
func (a *asked) Up(ctx context.Context, p registration.Plugin) error {
	c := a.n.client(p.Name)
	c.Name, c.Endpoint, c.Metrics = p.Name, p.Endpoint, nil
	d, err := csiclient.Dial(ctx, c)
	if err != nil {
		return err
	}
	i := d.Info()
	a.mu.Lock()
	a.can[p.Name] = handover.Abilities{Stage: i.Stage, MountGroup: i.MountGroup}
	a.mu.Unlock()
	return d.Close()
}

// Down is of no interest: what a driver said holds.
func (*asked) Down(registration.Plugin, string) {}

// keeper removes what a kubelet kept of a volume that was taken over from it.
func (n *Node) keeper() disk.Keeper { return disk.Keeper{Layout: n.layout, Kernel: n.kernel} }
