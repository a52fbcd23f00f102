package docker

import (
	"context"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/named"
)

// Volumes manages the named volumes of Docker and podman on this node: a volume of another
// front end does not exist for them. Each method may block until ctx ends,
// which it does when the client closes its connection. [named.ErrNotFound] means that
// the volume certainly does not exist, [named.ErrUnknown] that this is unknown. The
// front end shows the text of every error to the operator.
type Volumes interface {
	// Create creates the volume, or succeeds if the same volume exists: front ends
	// repeat a Create that took longer than they wait.
	Create(ctx context.Context, r named.Request) error
	Get(ctx context.Context, name string) (named.View, error)
	// List returns the volumes that exist. podman volume reload forgets a volume that
	// is missing from the list, so for an incomplete list List returns
	// named.ErrUnknown.
	List(ctx context.Context) ([]named.View, error)
	// Remove removes a volume for a process. If its storage stays, note says where.
	Remove(ctx context.Context, uid uint32, pid int32, name string) (note string, err error)
	Mounts
}

// Mounts manages the uses of named volumes. An id is not unique: dockerd uses a
// container's id for docker cp too, and podman one id for all containers.
type Mounts interface {
	// Mount mounts the volume for the process pid, and returns its path.
	Mount(ctx context.Context, name, id string, pid int32) (path string, err error)
	// Unmount ends one use under id. It does not fail if there is none.
	Unmount(ctx context.Context, name, id string) error
}
