package wire

import (
	"github.com/csi-volmgr/csi-volmgr/internal/cluster/drivers"
	"github.com/csi-volmgr/csi-volmgr/internal/host/watch"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/builtins"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/health"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// newAsker returns the asker for the usage and health of volumes.
func newAsker(
	b *builtins.Set, m *manager.Manager, d *drivers.Drivers, c *controller.Controller, mounts *watch.Mounts,
) *health.Asker {
	usage := map[state.DriverName]health.Usage{}
	for name, u := range b.Usage() {
		usage[name] = health.Usage(u)
	}
	return &health.Asker{Volumes: m, Drivers: d.Registered, Controller: c, Usage: usage, Mounts: mounts}
}
