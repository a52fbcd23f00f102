package watch

import (
	"log/slog"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
)

// WarnIfUnshared warns if drivers in containers would not see mounts below the root, and this process
// would not see theirs (CSI 1.13, mount propagation).
func WarnIfUnshared(kernel *mount.Kernel, root string, log *slog.Logger) {
	shared, err := kernel.IsShared(root)
	if err != nil {
		log.Warn("cannot read the mount propagation of the root directory", "path", root, "err", err)
	} else if !shared {
		log.Warn("root directory is not on a shared mount: mounts do not propagate to and from drivers in other mount "+
			"namespaces", "path", root)
	}
}
