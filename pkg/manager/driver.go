package manager

import (
	"context"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Driver makes the volumes of one CSI driver or one built-in kind. Its verbs
// are CSI's. Each must be idempotent, must honour ctx, and returns nil only
// when the effect is there; any other result says nothing about the host. An
// error may be or wrap a [state.CallError]; one that does not counts as
// [state.Failed]. The manager never makes two calls for one volume at a time.
//
// The volume passed is the record as it is durable during the call: for
// Publish, v.Mounts[pod] is the mount to make, in phase entering the first
// time and in phase present when its content is to be renewed. A renewal that
// fails must leave the mount as it was.
type Driver interface {
	Stage(ctx context.Context, v state.Volume) error
	Publish(ctx context.Context, v state.Volume, pod state.PodUID) error
	Unpublish(ctx context.Context, v state.Volume, pod state.PodUID) error
	Unstage(ctx context.Context, v state.Volume) error
	// Expand makes the volume, which pod has mounted, at least bytes large and
	// returns the size it has now, 0 where the driver does not say.
	Expand(ctx context.Context, v state.Volume, pod state.PodUID, bytes int64) (int64, error)
}

// Renewer is a Driver whose mounts expire, for example because they contain a token. PublishUntil is
// Publish, and returns when the mount is to be published again, zero for never;
// with an error it returns zero.
type Renewer interface {
	PublishUntil(ctx context.Context, v state.Volume, pod state.PodUID) (time.Time, error)
}

// Attacher makes a volume reachable from this node through the driver's
// Controller service, where no cluster does that.
type Attacher interface {
	Attach(ctx context.Context, v state.Volume) (publishContext map[string]string, err error)
	Detach(ctx context.Context, v state.Volume) error
}

// DriverInfo is what is known of a driver that is up: its abilities as data.
type DriverInfo struct {
	Name state.DriverName `json:"name"`
	// Endpoint is its socket; "" for a built-in kind.
	Endpoint string `json:"endpoint,omitempty"`
	Version  string `json:"version,omitempty"`
	// Builtin marks a kind served in this process.
	Builtin bool `json:"builtin,omitempty"`
	// NodeID is what NodeGetInfo returned.
	NodeID string `json:"nodeID,omitempty"`
	// Topology is this node's accessible topology as the driver sees it.
	Topology map[string]string `json:"topology,omitempty"`
	// MaxVolumes is how many volumes the driver can serve on the node; 0 means no limit.
	MaxVolumes int64 `json:"maxVolumes,omitempty"`
	// Capabilities are the node capabilities by their CSI names, sorted.
	Capabilities []string `json:"capabilities,omitempty"`
	// Stage: STAGE_UNSTAGE_VOLUME.
	Stage bool `json:"stage,omitempty"`
	// Expand: EXPAND_VOLUME of the node service.
	Expand bool `json:"expand,omitempty"`
	// Offline: it makes volumes larger only while no pod has them (VolumeExpansion OFFLINE).
	Offline bool `json:"offline,omitempty"`
	// Attach: csi-volmgr has to call ControllerPublishVolume for it.
	Attach bool `json:"attach,omitempty"`
	// MountGroup: VOLUME_MOUNT_GROUP.
	MountGroup bool `json:"mountGroup,omitempty"`
	// Deadline is what the driver's own deadlines leave a call at most; 0 is 2
	// minutes. It is for no answer that one waits for longer.
	Deadline time.Duration `json:"deadline,omitempty"`
	// MountsTarget: after Publish the target is the root of a mount. False for
	// built-in kinds that make plain directories or nothing at all.
	MountsTarget bool `json:"mountsTarget,omitempty"`
}

// Kernel is asked what is really there (rule 6).
type Kernel interface {
	// Look reports what the kernel shows at path, following no symbolic link in
	// its last element, without touching the storage behind a mount. An error
	// means that it is not known; a path that does not exist is no error.
	Look(ctx context.Context, path string) (state.Seen, error)
}

// Finder is a Kernel that also knows where else a mount is.
type Finder interface {
	// Elsewhere returns the places outside of the node's root where what is
	// mounted at path is mounted too.
	Elsewhere(ctx context.Context, path string) ([]string, error)
}

// Store keeps records. Both journals of pkg/state are one.
type Store interface {
	// Load returns every record, and the boot id under which they were written ("" if none was).
	Load(ctx context.Context) (state.Loaded, error)
	// Commit makes all changes durable, or none, before it returns. A nil value deletes.
	Commit(ctx context.Context, changes map[state.VolumeID]*state.Volume) error
	// SetBootID stores the boot id, durably.
	SetBootID(ctx context.Context, id string) error
}
