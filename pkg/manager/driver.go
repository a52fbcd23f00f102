package manager

import (
	"context"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Driver serves the volumes of one CSI driver or one built-in kind. Its verbs
// are CSI's. Each must be idempotent, must honour ctx, and returns nil only if
// it had its effect; an error says nothing about the state of the host. An
// error may be or wrap a [state.CallError]; any other error counts as
// [state.Failed]. With the outcome [state.Partly] it had its effect. The manager never
// makes two calls for one volume at a time.
//
// The volume passed is the record as it is durable during the call. For
// Publish, v.Mounts[pod] is the mount to make: in phase entering the first
// time, in phase present if its content has to be renewed. A renewal that
// fails must leave the mount unchanged.
type Driver interface {
	Stage(ctx context.Context, v state.Volume) error
	// Publish also returns when the mount has to be published again, for example because it
	// contains a token that expires; zero means never, and comes with every error.
	Publish(ctx context.Context, v state.Volume, pod state.PodUID) (renewAt time.Time, err error)
	Unpublish(ctx context.Context, v state.Volume, pod state.PodUID) error
	Unstage(ctx context.Context, v state.Volume) error
	// Expand makes the volume, which pod has mounted, at least bytes large. It returns
	// the new size; 0 if the driver does not say.
	Expand(ctx context.Context, v state.Volume, pod state.PodUID, bytes int64) (int64, error)
}

// Attacher attaches volumes to this node through the driver's Controller service, if no
// cluster does that.
type Attacher interface {
	Attach(ctx context.Context, v state.Volume) (publishContext map[string]string, err error)
	Detach(ctx context.Context, v state.Volume) error
}

// DriverInfo describes a driver that is up: its abilities as data.
type DriverInfo struct {
	Name state.DriverName `json:"name"`
	// Endpoint is the path of its socket; "" for a built-in kind.
	Endpoint string `json:"endpoint,omitempty"`
	Version  string `json:"version,omitempty"`
	// Builtin marks a kind served in this process.
	Builtin bool `json:"builtin,omitempty"`
	// Unusable says which program a built-in kind lacks, so that none of its volumes can be begun; "" if none.
	Unusable string `json:"unusable,omitempty"`
	// NodeID is what NodeGetInfo returned.
	NodeID string `json:"nodeID,omitempty"`
	// Topology is this node's accessible topology as the driver reports it.
	Topology map[string]string `json:"topology,omitempty"`
	// MaxVolumes is how many volumes the driver can serve on the node; 0 means no limit.
	MaxVolumes int64 `json:"maxVolumes,omitempty"`
	// Capabilities are the node capabilities by their CSI names, sorted.
	Capabilities []string `json:"capabilities,omitempty"`
	// Stage: STAGE_UNSTAGE_VOLUME.
	Stage bool `json:"stage,omitempty"`
	// Expand: EXPAND_VOLUME of the node service.
	Expand bool `json:"expand,omitempty"`
	// Offline: it expands volumes only while no pod has them (VolumeExpansion OFFLINE).
	Offline bool `json:"offline,omitempty"`
	// Attach: csi-volmgr has to call ControllerPublishVolume for it.
	Attach bool `json:"attach,omitempty"`
	// MountGroup: VOLUME_MOUNT_GROUP.
	MountGroup bool `json:"mountGroup,omitempty"`
	// Deadline is the longest of the driver's own deadlines for an RPC; 0 means 2 minutes.
	// A call may wait that long for an answer, plus a grace period.
	Deadline time.Duration `json:"deadline,omitempty"`
	// MountsTarget: after Publish the target is the root of a mount. It is false for
	// built-in kinds that make plain directories or nothing at all.
	MountsTarget bool `json:"mountsTarget,omitempty"`
}

// Kernel reports what really exists at a path (rule 6). Every method must return when ctx
// ends.
type Kernel interface {
	// Look reports what the kernel shows at path, without touching the storage behind
	// a mount. It does not follow a symbolic link in the last element. An error means
	// that the state is unknown; it is no error if path does not exist.
	Look(ctx context.Context, path string) (state.Seen, error)
	// Elsewhere returns the mount points outside the node's root of what is mounted at path.
	Elsewhere(ctx context.Context, path string) ([]string, error)
	// Size returns the size of what is mounted at path; zero if it is not known.
	Size(ctx context.Context, path string) (state.Sizes, error)
	// Probe returns nil if the storage behind path answers. It is called only when a caller
	// wants a volume verified.
	Probe(ctx context.Context, path string) error
	// HostPath returns an error if a pod may not have what path, a path of the node itself,
	// leads to now.
	HostPath(ctx context.Context, path string) error
}

// Store keeps the records durably. A node's is internal/journal.
type Store interface {
	// Load returns every record, and the boot id under which they were written; "" if none.
	Load(ctx context.Context) (state.Loaded, error)
	// Commit makes all changes durable, or none, before it returns. A nil value deletes a record.
	Commit(ctx context.Context, changes map[state.VolumeID]*state.Volume) error
	// SetBootID stores the boot id, durably.
	SetBootID(ctx context.Context, id string) error
}
