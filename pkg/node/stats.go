package node

import (
	"github.com/csi-volmgr/csi-volmgr/pkg/builtins"
	"github.com/csi-volmgr/csi-volmgr/pkg/controller"
	"github.com/csi-volmgr/csi-volmgr/pkg/drivers"
	"github.com/csi-volmgr/csi-volmgr/pkg/health"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/pkg/watch"
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
