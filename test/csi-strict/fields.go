package csistrict

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// The size limits of CSI 1.13 ("Size Limits"), in bytes.
const (
	maxString = 128
	maxNodeID = 256
	maxMap    = 4 << 10
)

// tokensKey holds service account tokens, which change with each call.
const tokensKey = reserved + "serviceAccount.tokens"

// canonical returns a request in one line, without the fields that may differ in a repetition.
func canonical(req proto.Message) string {
	m := proto.Clone(req).ProtoReflect()
	if f := m.Descriptor().Fields().ByName("secrets"); f != nil {
		m.Clear(f)
	}
	if f := m.Descriptor().Fields().ByName("volume_context"); f != nil && m.Has(f) {
		m.Mutable(f).Map().Clear(protoreflect.ValueOfString(tokensKey).MapKey())
	}
	return oneLine(m.Interface())
}

// hasTokens reports whether the volume context of a request has service account tokens.
func hasTokens(req proto.Message) bool {
	r, ok := req.(interface{ GetVolumeContext() map[string]string })
	return ok && r.GetVolumeContext()[tokensKey] != ""
}

// bytesOf returns how many bytes a request asks for, or 0.
func bytesOf(req proto.Message) int64 {
	if r, ok := req.(interface{ GetCapacityRange() *csi.CapacityRange }); ok {
		return r.GetCapacityRange().GetRequiredBytes()
	}
	return 0
}

// oneLine returns JSON that is the same in each run.
func oneLine(m proto.Message) string {
	b, err := protojson.Marshal(m)
	if err != nil {
		return err.Error()
	}
	var out bytes.Buffer
	if err := json.Compact(&out, b); err != nil {
		return err.Error()
	}
	return out.String()
}

// capabilityText returns the volume capability of a request in one line.
func capabilityText(req proto.Message) string {
	r, ok := req.(interface {
		GetVolumeCapability() *csi.VolumeCapability
	})
	if !ok || r.GetVolumeCapability() == nil {
		return ""
	}
	return oneLine(r.GetVolumeCapability())
}

// limits checks volume_id, sizes (N-23, N-24) and paths (N-42) of a request.
func (j *judge) limits(c *call) {
	fields := c.req.ProtoReflect().Descriptor().Fields()
	if fields.ByName("volume_id") != nil && c.volume == "" {
		c.required("volume_id", "")
	}
	c.measure(c.req.ProtoReflect(), "")
}

func (c *call) measure(m protoreflect.Message, in string) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := in + string(f.Name())
		switch {
		case f.IsMap() && f.MapValue().Kind() == protoreflect.StringKind:
			n := 0
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				n += len(k.String()) + len(v.String())
				return true
			})
			c.limit(name, n, maxMap)
		case f.IsMap():
		case f.IsList():
			c.measureList(f, v.List(), name)
		case f.Message() != nil:
			c.measure(v.Message(), name+".")
		case f.Kind() == protoreflect.StringKind:
			c.measureString(f.Name(), v.String(), name)
		}
		return true
	})
}

func (c *call) measureList(f protoreflect.FieldDescriptor, l protoreflect.List, name string) {
	n := 0
	for i := range l.Len() {
		switch {
		case f.Message() != nil:
			c.measure(l.Get(i).Message(), name+".")
		case strings.HasSuffix(name, "_ids"): // any number of ids, each as long as an id may be
			c.limit(fmt.Sprintf("%s[%d]", name, i), len(l.Get(i).String()), maxString)
		case f.Kind() == protoreflect.StringKind:
			n += len(l.Get(i).String())
		}
	}
	c.limit(name, n, maxMap)
}

func (c *call) measureString(field protoreflect.Name, s, name string) {
	switch field {
	case "staging_target_path", "target_path", "volume_path":
		if !filepath.IsAbs(s) || filepath.Clean(s) != s {
			c.breach(codes.OK, "N-42", "%s %q is not absolute and clean", name, s)
		}
	case "node_id":
		c.limit(name, len(s), maxNodeID)
	default:
		c.limit(name, len(s), maxString)
	}
}

func (c *call) limit(name string, have, most int) {
	if have > most {
		c.breach(codes.InvalidArgument, "N-23", "%s has %d bytes, %d are allowed", name, have, most)
	}
}

// capability checks a required volume capability (N-24, N-43, N-45, N-46).
func (j *judge) capability(c *call, v *csi.VolumeCapability) {
	if v == nil {
		c.required("volume_capability", "")
		return
	}
	mode := v.GetAccessMode().GetMode()
	if v.GetAccessType() == nil || mode == csi.VolumeCapability_AccessMode_UNKNOWN {
		c.breach(codes.InvalidArgument, "N-43", "volume_capability lacks an access type or mode")
	}
	multi := mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER || mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	if multi != j.told.can("SINGLE_NODE_MULTI_WRITER") && (multi || mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER) {
		c.breach(codes.OK, "N-46", "access mode %s, and SINGLE_NODE_MULTI_WRITER is %v", mode, !multi)
	}
	group := v.GetMount().GetVolumeMountGroup()
	if group == "" {
		return
	}
	if !j.told.can("VOLUME_MOUNT_GROUP") {
		c.breach(codes.InvalidArgument, "N-45", "volume_mount_group, and the driver has no VOLUME_MOUNT_GROUP")
	}
	if _, err := strconv.ParseUint(group, 10, 32); err != nil {
		c.breach(codes.InvalidArgument, "N-45", "volume_mount_group %q is no group id", group)
	}
}

// secretsOf returns the secrets of a request.
func secretsOf(req proto.Message) map[string]string {
	r, ok := req.(interface{ GetSecrets() map[string]string })
	if !ok {
		return nil
	}
	return r.GetSecrets()
}

// secrets: each call carries the secrets that were given for it, and no others (N-34).
func (j *judge) secrets(c *call) {
	if j.script.Secrets == nil {
		return
	}
	got, want := secretsOf(c.req), j.script.Secrets[c.name]
	if _, has := c.req.(interface{ GetSecrets() map[string]string }); has && !maps.Equal(got, want) {
		c.breach(codes.Unauthenticated, "N-34", "secrets with keys %q, want %q with the values given for this call",
			slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

// path returns the path that a request is about.
func pathOf(req proto.Message) string {
	switch r := req.(type) {
	case *csi.NodePublishVolumeRequest:
		return r.GetTargetPath()
	case interface{ GetTargetPath() string }:
		return r.GetTargetPath()
	case interface{ GetVolumePath() string }:
		return r.GetVolumePath()
	case interface{ GetStagingTargetPath() string }:
		return r.GetStagingTargetPath()
	}
	return ""
}

// volumeOf returns the volume that a request is about; for CreateVolume, its name; for a group's call, the group.
func volumeOf(req proto.Message) string {
	switch r := req.(type) {
	case *csi.CreateVolumeRequest:
		return fmt.Sprintf("name %s", r.GetName())
	case *csi.CreateVolumeGroupSnapshotRequest:
		return "group " + r.GetName() // names are ids here
	case interface{ GetGroupSnapshotId() string }:
		return "group " + r.GetGroupSnapshotId()
	case interface{ GetVolumeId() string }:
		return r.GetVolumeId()
	}
	return ""
}
