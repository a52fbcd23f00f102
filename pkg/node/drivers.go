package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/csi-volmgr/csi-volmgr/pkg/controller"
	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/fsgroup"
	"github.com/csi-volmgr/csi-volmgr/pkg/handover/disk"
	"github.com/csi-volmgr/csi-volmgr/pkg/localdriver"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/registration"
	"github.com/csi-volmgr/csi-volmgr/pkg/report"
	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// connection is a registered driver.
type connection struct {
	mu     sync.Mutex // held while the driver comes up, so that its loss is heard of after
	driver *csiclient.Driver
}

// Up makes a driver that registered available; see registration.Handler.
func (n *Node) Up(ctx context.Context, p registration.Plugin) error {
	c := &connection{}
	c.mu.Lock()
	defer c.mu.Unlock()
	d, err := csiclient.Dial(ctx, csiclient.Config{
		Name: p.Name, Endpoint: p.Endpoint, Peers: n.cfg.DriverUIDs[p.Name], Root: n.cfg.Root, Secrets: secrets{n},
		Tokens: n.tokens, Deadlines: n.deadlines(p.Name), Metrics: n.metrics, Logger: n.log,
		OnChange: func(i csiclient.Info, lost error) { n.driverChanged(c, i, lost) },
	})
	if errors.Is(err, csiclient.ErrName) {
		err = fmt.Errorf("%w: %w", registration.ErrRefused, err)
	}
	if err != nil {
		n.manager.DriverDown(p.Name, err.Error())
		return err
	}
	c.driver = d
	n.mu.Lock()
	n.drivers[p.Name] = c
	n.mu.Unlock()
	n.tellUp(d, d.Info())
	return nil
}

// deadlines are those of the driver's calls.
func (n *Node) deadlines(name state.DriverName) csiclient.Deadlines {
	if d, ok := n.cfg.Deadlines[name]; ok {
		return d
	}
	return n.cfg.Deadlines[resolve.Any]
}

// adopted is a driver whose volumes may have been taken over from a kubelet, which kept
// files of its own beside their stages.
type adopted struct {
	*csiclient.Driver
	keeper disk.Keeper
}

// Unstage implements manager.Driver.
func (d adopted) Unstage(ctx context.Context, v state.Volume) error {
	if err := d.keeper.BeforeUnstage(ctx, v); err != nil {
		return fmt.Errorf("remove what a kubelet kept of the volume: %w", err)
	}
	return d.Driver.Unstage(ctx, v)
}

// Down ends what Up began.
func (n *Node) Down(p registration.Plugin, reason string) {
	n.mu.Lock()
	c := n.drivers[p.Name]
	delete(n.drivers, p.Name)
	n.mu.Unlock()
	// Closed first: a closed connection can no longer be heard to be back.
	if err := c.driver.Close(); err != nil {
		n.log.Warn("connection to the driver cannot be closed", "driver", p.Name, "err", err)
	}
	n.tellDown(p.Name, reason)
	if n.report != nil {
		n.report.DriverDown(p.Name)
	}
}

// driverChanged hears that the driver's process went away, or is back.
func (n *Node) driverChanged(c *connection, i csiclient.Info, lost error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if lost != nil {
		n.tellDown(i.Name, lost.Error())
	} else {
		n.tellUp(c.driver, i)
	}
}

func (n *Node) tellUp(d *csiclient.Driver, i csiclient.Info) {
	n.manager.DriverUp(manager.DriverInfo{
		Name: i.Name, Endpoint: i.Endpoint, Version: i.Version, NodeID: i.NodeID, Topology: i.Topology,
		MaxVolumes: i.MaxVolumes, Capabilities: i.Capabilities,
		Stage: i.Stage, Expand: i.Expand, Attach: i.Attach && n.cfg.Cluster == nil, MountGroup: i.MountGroup,
		MountsTarget: true, Deadline: n.deadlines(i.Name).Longest(),
	}, fsgroup.Driver{Driver: adopted{d, n.keeper()}, Config: fsgroup.Config{
		Root: n.root, Helpers: n.helpers, Groups: i.MountGroup, Progress: n.manager.Progress, Logger: n.log,
	}})
	n.reportUp(i)
	if i.ControllerService {
		n.controller.DriverUp(controller.Driver{Name: i.Name, Conn: d.Conn(), NodeID: i.NodeID, Topology: i.Topology})
	}
}

// reportUp has the API server told of the driver.
func (n *Node) reportUp(i csiclient.Info) {
	if n.report != nil {
		n.report.DriverUp(report.Driver{Name: i.Name, NodeID: i.NodeID, Topology: i.Topology, MaxVolumes: i.MaxVolumes})
	}
}

func (n *Node) tellDown(name state.DriverName, reason string) {
	n.manager.DriverDown(name, reason)
	n.controller.DriverDown(name)
}

// runLocalDriver serves the embedded driver. It registers like any other.
func (n *Node) runLocalDriver(ctx context.Context) error {
	d, err := localdriver.New(localdriver.Config{
		NodeID: n.cfg.Name, StateDir: filepath.Join(n.cfg.StateDir, "local-driver"), Roots: []string{n.cfg.Root},
		Logger: n.log,
	})
	if err != nil {
		return fmt.Errorf("start the local driver: %w", err)
	}
	endpoint := filepath.Join(n.layout.Plugins(), localdriver.DefaultName, "csi.sock")
	if err := os.MkdirAll(filepath.Dir(endpoint), 0o750); err != nil {
		return errors.Join(fmt.Errorf("make the local driver's directory: %w", err), d.Close())
	}
	err = runAll(ctx, []func(context.Context) error{
		func(ctx context.Context) error { return d.Serve(ctx, endpoint) },
		func(ctx context.Context) error {
			return d.Register(ctx, localdriver.RegisterConfig{Dir: n.cfg.RegistrationDir, Endpoint: endpoint})
		},
	})
	return errors.Join(err, d.Close())
}
