package csiclient

import (
	"unicode/utf8"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// within reports whether a request is certainly within the limits. It knows the four
// requests that every volume needs: checking them by reflection took 2 % more of a
// manager's CPU when measured alone, and more together with other parts
// (docs/performance.md). For other requests it returns false and checkMessage decides.
func within(m proto.Message) bool {
	switch r := m.(type) {
	case *csi.NodeStageVolumeRequest:
		return short(r.VolumeId, state.MaxHandle) && utf8.ValidString(r.StagingTargetPath) &&
			capabilityWithin(r.VolumeCapability) &&
			mapFits(r.PublishContext) && mapFits(r.Secrets) && mapFits(r.VolumeContext)
	case *csi.NodePublishVolumeRequest:
		return short(r.VolumeId, state.MaxHandle) && utf8.ValidString(r.StagingTargetPath) &&
			utf8.ValidString(r.TargetPath) && capabilityWithin(r.VolumeCapability) &&
			mapFits(r.PublishContext) && mapFits(r.Secrets) && mapFits(r.VolumeContext)
	case *csi.NodeUnpublishVolumeRequest:
		return short(r.VolumeId, state.MaxHandle) && utf8.ValidString(r.TargetPath)
	case *csi.NodeUnstageVolumeRequest:
		return short(r.VolumeId, state.MaxHandle) && utf8.ValidString(r.StagingTargetPath)
	}
	return false
}

func capabilityWithin(c *csi.VolumeCapability) bool {
	m := c.GetMount()
	return short(m.GetFsType(), maxString) && short(m.GetVolumeMountGroup(), maxString) && flagsWithin(m.GetMountFlags())
}

func flagsWithin(flags []string) bool {
	size := 0
	for _, f := range flags {
		if size += len(f); !utf8.ValidString(f) {
			return false
		}
	}
	return size <= maxFlags
}

func short(s string, limit int) bool { return len(s) <= limit && utf8.ValidString(s) }

// mapFits is checkMap of one of givenFields, except that it counts the length of tokens too.
func mapFits(m map[string]string) bool {
	size := 0
	for k, v := range m {
		if size += len(k) + len(v); !utf8.ValidString(k) || !utf8.ValidString(v) {
			return false
		}
	}
	return size <= maxGiven
}
