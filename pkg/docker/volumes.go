package docker

import (
	"context"
	"errors"
	"time"
)

var (
	// ErrNotFound: no volume of that name exists. It is wrapped only where that is
	// certain, since dockerd and podman forget the volume then.
	ErrNotFound = errors.New("no such volume")
	// ErrUnknown: the journal or a source is not read yet, or cannot be read, so that
	// nothing may be said of what exists.
	ErrUnknown = errors.New("not known yet")
)

// Request asks for a volume.
type Request struct {
	Name string
	// Options are those of volume create; a front end passes them on as they are.
	Options map[string]string
}

// View is what a front end shows of a volume.
type View struct {
	Name string
	// Mountpoint is where the volume is mounted on this host, "" where it is not.
	Mountpoint string
	Created    time.Time
	// Status is shown by docker volume inspect. It must be encodable as JSON.
	Status map[string]any
}

// Volumes are the named volumes of this node. Each method may block until ctx ends,
// which it does when the client closes its connection. An error that is [ErrNotFound]
// or [ErrUnknown] is answered as their comments say; every other error's text is shown
// to the operator by the front end.
type Volumes interface {
	// Create makes the volume, or finds it as it was asked for before: front ends
	// repeat a Create that took longer than they wait.
	Create(ctx context.Context, r Request) error
	Get(ctx context.Context, name string) (View, error)
	// List returns the volumes that exist. A volume that is left out is forgotten by
	// podman volume reload, so a list that is not complete is ErrUnknown.
	List(ctx context.Context) ([]View, error)
	Remove(ctx context.Context, name string) error
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
