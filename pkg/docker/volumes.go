package docker

import (
	"context"

	"github.com/csi-volmgr/csi-volmgr/pkg/source/named"
)

// Volumes are the named volumes of this node. Each method may block until ctx ends,
// which it does when the client closes its connection. An error that is
// [named.ErrNotFound] says for certain that there is no such volume, one that is
// [named.ErrUnknown] that nothing may be said of it; every error's text is shown to the
// operator by the front end.
type Volumes interface {
	// Create makes the volume, or finds it as it was asked for before: front ends
	// repeat a Create that took longer than they wait.
	Create(ctx context.Context, r named.Request) error
	Get(ctx context.Context, name string) (named.View, error)
	// List returns the volumes that exist. A volume that is left out is forgotten by
	// podman volume reload, so a list that is not complete is named.ErrUnknown.
	List(ctx context.Context) ([]named.View, error)
	// Remove returns where the volume's storage is, if that stays.
	Remove(ctx context.Context, name string) (note string, err error)
	Mounts
}

// Mounts are the uses of named volumes. An id is not unique: dockerd uses a container's
// own id for docker cp beside its start, and podman one id for all containers.
type Mounts interface {
	// Mount returns the path of the volume once it is mounted there.
	Mount(ctx context.Context, name, id string) (path string, err error)
	// Unmount says that one use under id has ended. It does not fail where there is none.
	Unmount(ctx context.Context, name, id string) error
}
