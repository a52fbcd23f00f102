package localdriver

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// accessModes are the access modes of a volume that only one node can reach.
var accessModes = []csi.VolumeCapability_AccessMode_Mode{
	csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER,
}

// parseUse parses one volume capability. Its errors are INVALID_ARGUMENT.
func parseUse(c *csi.VolumeCapability) (use, error) {
	u := use{Mode: c.GetAccessMode().GetMode().String()}
	if c == nil || c.GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_UNKNOWN {
		return use{}, invalid("the volume capability or its access mode is missing")
	}
	switch {
	case c.GetBlock() != nil:
		u.Block = true
	case c.GetMount() != nil:
		u.FSType = c.GetMount().GetFsType()
		u.Flags = strings.Join(c.GetMount().GetMountFlags(), ",")
		if c.GetMount().GetVolumeMountGroup() != "" {
			return use{}, invalid("volume_mount_group is set, but the driver has no VOLUME_MOUNT_GROUP")
		}
	default:
		return use{}, invalid("the volume capability has no access type")
	}
	if _, ok := minBytes(u.FSType); !ok && u.FSType != "" {
		return use{}, invalid("fsType %q: not one of xfs, ext4, btrfs", u.FSType)
	}
	return u, nil
}

// unsupported says why a volume of the given type cannot be used as c asks, or returns "".
func unsupported(kind string, c *csi.VolumeCapability) string {
	if !slices.Contains(accessModes, c.GetAccessMode().GetMode()) {
		return fmt.Sprintf("access mode %s is not supported: the volume is on one node", c.GetAccessMode().GetMode())
	}
	if c.GetBlock() != nil && kind == typeDirectory {
		return "a volume of type directory is not a block device"
	}
	return ""
}

// exclusive reports whether a publication in this mode allows no other (CSI 1.13 NodePublishVolume,
// second table).
func exclusive(mode string) bool {
	return mode != csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER.String()
}

// readerOnly reports whether mode forbids writing.
func readerOnly(mode string) bool {
	return mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY.String()
}

// The parameters of a StorageClass and the attributes of an inline volume.
const (
	paramType = "type"
	paramSize = "size" // inline volumes only
	// paramPrefix is the prefix of parameters that the CO adds.
	paramPrefix = "csi.storage.k8s.io/"
	// paramEphemeral marks an inline volume.
	paramEphemeral = paramPrefix + "ephemeral"
	// paramPropagation is, in a publish call, the mountPropagation that the pod asks for.
	paramPropagation = "csi-volmgr.dev/mount-propagation"
)

// parseType parses the parameter "type". It returns an error for parameters that it does not know.
func parseType(params map[string]string, known ...string) (string, error) {
	for _, key := range slices.Sorted(maps.Keys(params)) {
		if key != paramType && !slices.Contains(known, key) && !strings.HasPrefix(key, paramPrefix) {
			return "", invalid("unknown parameter %q", key)
		}
	}
	switch t := params[paramType]; t {
	case "", typeImage:
		return typeImage, nil
	case typeDirectory:
		return typeDirectory, nil
	default:
		return "", invalid("parameter type %q: not one of image, directory", t)
	}
}

// The unit of sizes and the default size, in bytes.
const (
	sizeUnit    = 4 << 10
	defaultSize = 1 << 30
)

// sizeFor returns the size in bytes for a capacity range: the required size, or else the default,
// but at least least, in whole units.
func sizeFor(r *csi.CapacityRange, least int64) (int64, error) {
	required, limit := r.GetRequiredBytes(), r.GetLimitBytes()
	if required < 0 || limit < 0 || (limit > 0 && required > limit) {
		return 0, invalid("capacity range: required %d, limit %d", required, limit)
	}
	size := required
	if size == 0 {
		size = max(defaultSize, least)
		if limit > 0 && size > limit {
			size = limit - limit%sizeUnit
		}
	}
	size = max(size, least)
	if size > maxSize {
		return 0, refuse(codes.OutOfRange, "%d bytes: more than a file can hold", size)
	}
	size = (size + sizeUnit - 1) / sizeUnit * sizeUnit
	if limit > 0 && size > limit {
		return 0, refuse(codes.OutOfRange, "the smallest volume that fits is %d bytes, the limit is %d", size, limit)
	}
	return size, nil
}

// maxSize prevents overflow: it is slightly below 8 EiB.
const maxSize = 1<<63 - 1<<20

// checkPath rejects a path that a CO must not send (CSI 1.13: absolute).
func checkPath(field, path string) error {
	if path == "" {
		return invalid("%s is missing", field)
	}
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsRune(path, 0) {
		return invalid("%s %q is not a clean absolute path", field, path)
	}
	return nil
}
