package operate

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/host/holders"
	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/fsgroup"
	"github.com/csi-volmgr/csi-volmgr/internal/localdriver"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/made"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/api"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/file"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/named"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// NamedConfig is what named volumes need from the node; every field but NomadAllow is required.
type NamedConfig struct {
	// Root is the directory below which volumes are mounted: absolute and clean.
	Root       *os.File
	Catalog    *source.Catalog
	Journal    Journal
	Objects    *Objects
	Manager    *manager.Manager
	Containers server.Containers
	Helpers    *isolate.Pool
	BootID     string
	// Lost reports whether the journal may have lost records and no operator has accepted that.
	Lost func() bool
	// Silent lists the sources that have not spoken yet.
	Silent func() []string
	// NomadAllow is what volumes of Nomad may have besides their own claims; nil is nothing.
	NomadAllow []named.NomadRule
	Logger     *slog.Logger
}

// NewNamed returns the provider of named volumes.
func NewNamed(c NamedConfig) *named.Provider {
	p := named.New(named.Config{
		KV: c.Journal, Catalog: c.Catalog, Claims: c.Objects, Mounts: &namedMounts{c: c}, BootID: c.BootID, Lost: c.Lost,
		NomadAllow: c.NomadAllow, Logger: c.Logger, Started: started,
		Spoken: func() bool {
			silent := c.Silent()
			return !slices.Contains(silent, api.Name) && !slices.Contains(silent, file.Name)
		},
	})
	places := p.Places
	c.Objects.places.Store(&places)
	c.Objects.rows.Store(p)
	return p
}

// startField is the place of starttime (proc_pid_stat(5)) after the name of the program, which may have spaces.
const startField = 19

// started returns when a process started, in clock ticks since the boot; "" if there is none.
func started(pid int32) string {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(int(pid)) + "/stat")
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) <= startField || fields[0] == "Z" {
		return "" // also one that has ended and whose parent has not asked yet
	}
	return fields[startField]
}

// namedMounts mounts named volumes and asks the kernel who holds them (named.Mounts).
type namedMounts struct {
	c       NamedConfig
	holders holders.Finder
}

// Mounted implements named.Mounts.
func (m *namedMounts) Mounted(ctx context.Context, uid types.UID) error {
	return m.c.Manager.WaitUnlessRefused(ctx, state.PodUID(uid))
}

// Gone implements named.Mounts.
func (m *namedMounts) Gone(ctx context.Context, uid types.UID) error {
	return m.c.Manager.WaitForUnmount(ctx, state.PodUID(uid))
}

// Give implements named.Mounts.
func (m *namedMounts) Give(ctx context.Context, pod source.Key, container string, o state.Owner) (string, error) {
	mounts, err := m.c.Containers.ContainerMounts(ctx, server.Container{
		Namespace: pod.Namespace, Pod: pod.Name, Name: container,
	})
	if err != nil {
		return "", err
	}
	if len(mounts) != 1 || mounts[0].Device || mounts[0].HostPath == "" {
		return "", fmt.Errorf("%w: the claim of %s is a block volume, not a file system: containers get a device through "+
			"csi-volmgr get mounts --container", server.ErrInvalid, pod)
	}
	path := mounts[0].HostPath
	if !o.IsZero() {
		if err := (fsgroup.Giver{Root: m.c.Root, Helpers: m.c.Helpers}).Give(ctx, path, o); err != nil {
			return "", fmt.Errorf("give %s to its owner: %w", path, err)
		}
	}
	return path, nil
}

// Waits implements named.Mounts.
func (m *namedMounts) Waits(uid types.UID) []string {
	var lines []string
	p, _ := m.c.Manager.Pod(state.PodUID(uid))
	for _, v := range p.Volumes {
		if !v.Mounted || v.Unresolved() {
			lines = append(lines, v.Line(time.Now()))
		}
	}
	return lines
}

// inspectPatience is how long a removal, or the end of a use, waits for processes that cannot be inspected at once.
const inspectPatience = 5 * time.Second

// Holders implements named.Mounts. It fails if it finds no holder and there is a process that it could
// not inspect: that process may hold the volume.
func (m *namedMounts) Holders(ctx context.Context, uid types.UID) ([]named.Holder, error) {
	var paths []string
	p, _ := m.c.Manager.Pod(state.PodUID(uid))
	for _, v := range p.Volumes {
		status, _ := m.c.Manager.Volume(v.ID)
		if mount := status.Volume.Mounts[state.PodUID(uid)]; mount.Phase != state.Absent && mount.Target != "" {
			paths = append(paths, mount.Target)
		}
	}
	return m.holdersOf(ctx, paths)
}

// holdersOf returns the holders of what is mounted at paths.
func (m *namedMounts) holdersOf(ctx context.Context, paths []string) ([]named.Holder, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	r, err := m.holders.Find(ctx, holders.Query{Own: m.c.Root.Name(), Paths: paths, Patience: inspectPatience})
	if err != nil {
		return nil, err
	}
	found := namedHolders(r, paths[0])
	if len(found) > 0 {
		return found, nil
	}
	return nil, unread(r.Unread)
}

// unread returns an error if a process that may hold a volume could not be inspected. Process 1 is
// exempt: it started this node, or the container of csi-volmgr, so no front end's container has it, and
// in some sandboxes not even root may inspect it.
func unread(all []holders.Unread) error {
	for _, u := range all {
		if u.PID != 1 {
			return fmt.Errorf("process %d (%s) could not be inspected: %s", u.PID, u.Name, u.Why)
		}
	}
	return nil
}

// namedHolders returns the holders of a volume other than csi-volmgr, whose own mounts the report leaves out, with
// their copies: a monitor of the host has a copy of every mount. A process without a mount of its own has the one at
// target, or one that was unmounted lazily; which file it has open is for root only.
func namedHolders(r holders.Report, target string) []named.Holder {
	var found []named.Holder
	for _, path := range r.Mounts {
		found = append(found, named.Holder{Path: path})
	}
	for _, n := range r.Namespaces {
		found = append(found, named.Holder{PID: n.PID, Program: n.Name, Container: n.Container.ID, Path: n.Mounts[0]})
	}
	for _, p := range r.Processes {
		isKnown := slices.ContainsFunc(found, func(h named.Holder) bool {
			return h.PID == p.PID || h.Container != "" && h.Container == p.Container.ID
		})
		if p.PID == os.Getpid() || isKnown || len(p.Uses) == 0 {
			continue
		}
		h := named.Holder{PID: p.PID, Program: p.Name, Container: p.Container.ID, Path: target}
		h.Detached = !slices.ContainsFunc(p.Uses, func(u holders.Use) bool { return !u.Detached })
		h.Unsure = !slices.ContainsFunc(p.Uses, func(u holders.Use) bool { return !u.Unsure })
		found = append(found, h)
	}
	return found
}

// Claim returns what has become of the volume of a claim (named.Claims).
func (o *Objects) Claim(claim source.Key) (named.ClaimState, <-chan struct{}) {
	changed := o.c.Controller.Changed()
	c, _ := o.c.Controller.Claim(made.ClaimKey(claim))
	state := named.ClaimState{
		Bound: c.Volume != nil, Refused: c.Refused, Stalled: c.Stalled, Why: made.Note(c),
	}
	if c.Rejected {
		state.Refused, state.Next = true, "correct the options that the driver refuses, such as the size, or those of "+
			"StorageClass "+c.Class
	}
	switch c.Away {
	case "":
	case localdriver.DefaultName:
		state.Next = "put local-driver: true into the daemon's configuration (/etc/csi-volmgr/config.yaml), then: " +
			"systemctl restart csi-volmgr"
	default:
		state.Next = "start the driver, and see which ones are up: csi-volmgr get drivers"
	}
	return state, changed
}

// Reclaim makes the volume of a named volume's claim go with the claim, or stay (named.Claims).
func (o *Objects) Reclaim(ctx context.Context, claim source.Key, del bool) error {
	if c, known := o.c.Controller.Claim(made.ClaimKey(claim)); !known || c.Volume == nil {
		return nil // the claim's annotation says it when the volume is made
	}
	r := server.Reclaim{Namespace: claim.Namespace, Claim: claim.Name, Policy: string(controller.Retain)}
	if del {
		r.Policy = string(controller.Delete)
	}
	_, err := o.SetReclaim(ctx, audit.Peer(uint32(os.Geteuid()), int32(os.Getpid())), r)
	return err
}

// DeleteNamed deletes the claim of a named volume; withdraw withdraws it from its source (named.Claims).
func (o *Objects) DeleteNamed(
	ctx context.Context, by named.Asker, claim source.Key, reason string, withdraw func(),
) (string, error) {
	d := server.ClaimDeletion{Namespace: claim.Namespace, Name: claim.Name, Reason: reason}
	who := audit.Peer(by.UID, by.PID)
	if by.PID == 0 { // a removal that goes on after a restart; the reason names the front end
		who = audit.Peer(uint32(os.Geteuid()), int32(os.Getpid()))
	}
	return o.deleteOf(ctx, who, d, func(context.Context, source.Key) error {
		withdraw()
		return nil
	})
}
