package csistrict

import (
	"maps"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// stage: NodeStageVolume.
func (j *judge) stage(c *call, v *Volume) {
	req := c.req.(*csi.NodeStageVolumeRequest)
	c.required("staging_target_path", req.GetStagingTargetPath())
	j.capability(c, req.GetVolumeCapability())
	if v == nil {
		return
	}
	if !j.told.can("STAGE_UNSTAGE_VOLUME") {
		c.breach(codes.Unimplemented, "N-51", "NodeStageVolume, and the driver has no STAGE_UNSTAGE_VOLUME")
	}
	j.attached(c, v, "N-53")
	j.publishContext(c, v, req.GetPublishContext())
	if !maps.Equal(own(req.GetVolumeContext()), v.Context) {
		c.breach(codes.InvalidArgument, "N-40", "volume_context is %v, the volume's is %v", req.GetVolumeContext(), v.Context)
	}
	if v.Stage.Phase == Leaving {
		c.breach(codes.FailedPrecondition, "N-52", "NodeStageVolume before NodeUnstageVolume was answered OK")
	}
	if v.StagePath != "" && v.StagePath != c.path {
		c.breach(codes.InvalidArgument, "N-55", "staging path %s, and the volume's is %s", c.path, v.StagePath)
	}
	if !c.seen.staging {
		c.breach(codes.FailedPrecondition, "N-56", "staging path %s is not a directory", c.path)
	}
	c.same(v.Stage)
}

// unstage: NodeUnstageVolume.
func (j *judge) unstage(c *call, v *Volume) {
	c.required("staging_target_path", c.path)
	if v == nil {
		return
	}
	if !j.told.can("STAGE_UNSTAGE_VOLUME") && v.Stage.Phase == Absent {
		c.breach(codes.Unimplemented, "N-51", "NodeUnstageVolume, and the driver has no STAGE_UNSTAGE_VOLUME")
	}
	if len(v.Targets) > 0 {
		c.breach(codes.FailedPrecondition, "N-62", "NodeUnstageVolume, and the volume is or may be published at %v", slices.Sorted(maps.Keys(v.Targets)))
	}
	if v.StagePath != "" && v.StagePath != c.path {
		c.breach(codes.InvalidArgument, "N-55", "staging path %s, and the volume's is %s", c.path, v.StagePath)
	}
}

// publish: NodePublishVolume.
func (j *judge) publish(c *call, v *Volume) {
	req := c.req.(*csi.NodePublishVolumeRequest)
	c.required("target_path", req.GetTargetPath())
	j.capability(c, req.GetVolumeCapability())
	if v == nil {
		return
	}
	j.volumeContext(c, v, req.GetVolumeContext())
	j.publishContext(c, v, req.GetPublishContext())
	if !v.Ephemeral {
		j.attached(c, v, "N-65")
	}
	j.staged(c, v, req.GetStagingTargetPath(), "N-66")
	if j.told.can("STAGE_UNSTAGE_VOLUME") && !v.Ephemeral && v.Stage.Phase != Present {
		c.breach(codes.FailedPrecondition, "N-54", "NodePublishVolume, and NodeStageVolume was not answered OK")
	}
	f := v.Targets[c.path]
	if !c.seen.parent {
		c.breach(codes.FailedPrecondition, "N-68", "the parent of target %s is not a directory", c.path)
	}
	if c.seen.target && f.Phase == Absent {
		c.breach(codes.FailedPrecondition, "N-68", "target %s was made by the CO", c.path)
	}
	if f.Phase == Leaving {
		c.breach(codes.FailedPrecondition, "N-70", "NodePublishVolume before NodeUnpublishVolume was answered OK")
	}
	j.alone(c, v, req.GetVolumeCapability())
	c.same(f)
}

// alone: other publications and the stage must agree with this one.
func (j *judge) alone(c *call, v *Volume, want *csi.VolumeCapability) {
	text := capabilityText(c.req)
	if v.Stage.Capability != "" && v.Stage.Capability != text {
		c.breach(codes.FailedPrecondition, "N-47", "capability %s, and staged was %s", text, v.Stage.Capability)
	}
	for target, f := range v.Targets {
		if target == c.path {
			continue
		}
		if f.Capability != text {
			c.breach(codes.FailedPrecondition, "N-47", "capability %s, and published at %s was %s", text, target, f.Capability)
		}
		if want.GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER {
			c.breach(codes.FailedPrecondition, "N-48", "published to a second target, and its mode is SINGLE_NODE_SINGLE_WRITER; the first is %s", target)
		}
	}
	for id, other := range j.model.Volumes {
		if _, ok := other.Targets[c.path]; ok && id != c.volume {
			c.breach(codes.FailedPrecondition, "N-67", "target %s is volume %s's", c.path, id)
		}
	}
}

// unpublish: NodeUnpublishVolume.
func (j *judge) unpublish(c *call, v *Volume) {
	c.required("target_path", c.path)
	if v == nil {
		return
	}
	if f := v.Targets[c.path]; f.Phase == Present && !f.Odd && !c.seen.target {
		c.breach(codes.OK, "N-76", "target %s was removed behind the driver's back", c.path)
	}
}

// nodeExpand: NodeExpandVolume.
func (j *judge) nodeExpand(c *call, v *Volume) {
	req := c.req.(*csi.NodeExpandVolumeRequest)
	c.required("volume_path", c.path)
	if req.GetVolumeCapability() != nil {
		j.capability(c, req.GetVolumeCapability())
	}
	if v == nil {
		return
	}
	if !j.told.serves(byNode, expansion) {
		c.breach(codes.Unimplemented, "N-94", "NodeExpandVolume, and the driver has no EXPAND_VOLUME")
	}
	if f := v.Targets[c.path]; f.Phase != Present && (c.path != v.StagePath || v.Stage.Phase != Present) {
		c.breach(codes.NotFound, "N-97", "volume path %s: the volume is not published or staged there", c.path)
		return
	}
	if j.told.can("STAGE_UNSTAGE_VOLUME") && v.Stage.Phase != Present {
		c.breach(codes.FailedPrecondition, "N-96", "NodeExpandVolume, and the volume is not staged")
	}
	if path := req.GetStagingTargetPath(); path != "" || j.told.can("STAGE_UNSTAGE_VOLUME") {
		if path != v.StagePath {
			c.breach(codes.OK, "N-99", "staging path %q, and the volume's is %q", path, v.StagePath)
		}
	}
	if n := req.GetCapacityRange().GetRequiredBytes(); n > v.SizeBytes && j.told.serves(byController, expansion) {
		c.breach(codes.OutOfRange, "N-95", "to %d bytes, and ControllerExpandVolume made it %d", n, v.SizeBytes)
	}
}

// stats: NodeGetVolumeStats.
func (j *judge) stats(c *call, v *Volume) {
	req := c.req.(*csi.NodeGetVolumeStatsRequest)
	c.required("volume_path", c.path)
	if v == nil || c.path == "" {
		return
	}
	if !j.told.can("GET_VOLUME_STATS") {
		c.breach(codes.Unimplemented, "N-78", "NodeGetVolumeStats, and the driver has no GET_VOLUME_STATS")
	}
	if _, ok := v.Targets[c.path]; !ok && (c.path != v.StagePath || v.Stage.Phase == Absent) && !c.underWay(v, c.path) {
		c.breach(codes.NotFound, "N-80", "volume path %s: the volume is not published or staged there", c.path)
		return
	}
	if path := req.GetStagingTargetPath(); path != "" && path != v.StagePath {
		c.breach(codes.OK, "N-79", "staging path %q, and the volume's is %q", path, v.StagePath)
	}
}

// underWay reports whether c, which only asks, may have begun before the volume was unmounted from the path: one call
// may arrive after that, and no second.
func (c *call) underWay(v *Volume, path string) bool {
	since := v.Last[c.key()].At
	return v.Last["NodeUnpublishVolume "+path].At.After(since) || v.Last["NodeUnstageVolume "+path].At.After(since)
}

// health: NodeGetVolumeHealth, also for a volume that a call has tried to stage or publish.
func (j *judge) health(c *call, v *Volume) {
	req := c.req.(*csi.NodeGetVolumeHealthRequest)
	if v == nil {
		return
	}
	if !j.told.serves(byNode, volumeHealth) {
		c.breach(codes.Unimplemented, "N-84", "NodeGetVolumeHealth, and the driver has no GET_VOLUME_HEALTH")
	}
	if path := req.GetVolumePublishPath(); path != "" {
		if _, ok := v.Targets[path]; !ok && !c.underWay(v, path) {
			c.breach(codes.OK, "N-84", "publish path %s: the volume is not published there, nor was that tried", path)
		}
	}
	if path := req.GetStagingTargetPath(); path != "" && path != v.StagePath {
		c.breach(codes.OK, "N-84", "staging path %q, and the volume's is %q", path, v.StagePath)
	}
}

// controllerHealth: ControllerGetVolumeHealth, which is not called for a deleted volume.
func (j *judge) controllerHealth(c *call, v *Volume) {
	if !j.told.serves(byController, volumeHealth) {
		c.breach(codes.Unimplemented, "N-84", "ControllerGetVolumeHealth, and the driver's Controller service has no GET_VOLUME_HEALTH")
	}
	if v == nil && c.volume != "" {
		c.breach(codes.NotFound, "N-84", "ControllerGetVolumeHealth of volume %s, which was never made or is deleted", c.volume)
	}
	if v != nil && v.Ephemeral {
		c.breach(codes.NotFound, "N-84", "ControllerGetVolumeHealth of volume %s, which no CreateVolume made", c.volume)
	}
}

// storage: NodeGetStorageHealth.
func (j *judge) storage(c *call, _ *Volume) {
	if !j.told.can("GET_STORAGE_HEALTH") {
		c.breach(codes.Unimplemented, "N-87", "NodeGetStorageHealth, and the driver has no GET_STORAGE_HEALTH")
	}
}

// attach: ControllerPublishVolume.
func (j *judge) attach(c *call, v *Volume) {
	req := c.req.(*csi.ControllerPublishVolumeRequest)
	c.required("node_id", req.GetNodeId())
	j.capability(c, req.GetVolumeCapability())
	if v == nil {
		return
	}
	if !j.told.attaches() {
		c.breach(codes.Unimplemented, "N-13", "ControllerPublishVolume, and driver or CSIDriver object say that none is needed")
	}
	if _, shared := j.zones[req.GetNodeId()]; !shared && req.GetNodeId() != j.node() {
		c.breach(codes.NotFound, "N-103", "node id %q, and NodeGetInfo's is %q", req.GetNodeId(), j.node())
	}
	if v.Attach.Phase != Absent && elsewhere(c, v) {
		c.breach(codes.FailedPrecondition, "N-104", "ControllerPublishVolume to node %s, and the volume is or may be attached to %s", req.GetNodeId(), v.NodeID)
	}
	if !maps.Equal(own(req.GetVolumeContext()), v.Context) {
		c.breach(codes.InvalidArgument, "N-40", "volume_context is %v, the volume's is %v", req.GetVolumeContext(), v.Context)
	}
	if v.Attach.Phase == Leaving {
		c.breach(codes.FailedPrecondition, "N-104", "ControllerPublishVolume before ControllerUnpublishVolume was answered OK")
	}
	c.same(v.Attach)
}

// detach: ControllerUnpublishVolume.
func (j *judge) detach(c *call, v *Volume) {
	if v == nil {
		return
	}
	if v.inUse() && !elsewhere(c, v) {
		c.breach(codes.FailedPrecondition, "N-104", "ControllerUnpublishVolume, and the volume is or may be on the node")
	}
}

// controllerExpand: ControllerExpandVolume.
func (j *judge) controllerExpand(c *call, v *Volume) {
	if v != nil && j.told.can("OFFLINE") && v.inUse() {
		c.breach(codes.FailedPrecondition, "N-98", "ControllerExpandVolume of a volume in use, and the driver expands offline only")
	}
}

// remove: DeleteVolume.
func (j *judge) remove(c *call, v *Volume) {
	if v != nil && (v.inUse() || v.Attach.Phase != Absent) {
		c.breach(codes.FailedPrecondition, "N-104", "DeleteVolume of a volume in use")
	}
}

// create: CreateVolume.
func (j *judge) create(c *call, _ *Volume) {
	if j.told.NoController {
		c.breach(codes.Unimplemented, "N-13", "CreateVolume, and the driver has no Controller service")
	}
}

// capabilities: NodeGetCapabilities must not precede every call.
func (j *judge) capabilities(c *call, _ *Volume) {
	if c.asked > maxAsked {
		c.breach(codes.OK, "N-15", "NodeGetCapabilities for the %dth time on one connection", c.asked)
	}
}

// attached: the volume must be attached first if the driver attaches.
func (j *judge) attached(c *call, v *Volume, rule string) {
	switch {
	case !j.told.attaches():
	case v.Attach.Phase != Present:
		c.breach(codes.FailedPrecondition, rule, "%s, and ControllerPublishVolume was not answered OK", c.name)
	case len(j.zones) > 0 && v.NodeID != c.node:
		c.breach(codes.FailedPrecondition, rule, "%s on node %q, and the volume is attached to %q", c.name, c.node, v.NodeID)
	}
}

// publishContext must be exactly what ControllerPublishVolume returned.
func (j *judge) publishContext(c *call, v *Volume, got map[string]string) {
	var want map[string]string
	if j.told.attaches() && !v.Ephemeral {
		want = v.Attach.Context
	}
	if !maps.Equal(got, want) {
		c.breach(codes.InvalidArgument, "N-39", "publish_context is %v, want %v", got, want)
	}
}

// staged: the request has the staging path if there is one, and only then.
func (j *judge) staged(c *call, v *Volume, got, rule string) {
	want := ""
	if !v.Ephemeral && (j.told.can("STAGE_UNSTAGE_VOLUME") || v.Stage.Phase != Absent) {
		want = v.StagePath
		if want == "" && got != "" {
			return // never staged, which is another breach
		}
	}
	switch {
	case got == want:
	case got == "":
		c.breach(codes.FailedPrecondition, rule, "staging_target_path is not set")
	default:
		c.breach(codes.InvalidArgument, rule, "staging_target_path is %q, want %q", got, want)
	}
}

// reserved is the prefix of the keys that a CO adds to the volume context of a publication.
const reserved = "csi.storage.k8s.io/"

// ephemeralKey says that a volume is inline in its pod.
const ephemeralKey = reserved + "ephemeral"

// provisionerKey is the key that external-provisioner adds to the context of a volume.
const provisionerKey = "storage.kubernetes.io/csiProvisionerIdentity"

// own returns a volume context without the key that external-provisioner added.
func own(volumeContext map[string]string) map[string]string {
	out := maps.Clone(volumeContext)
	delete(out, provisionerKey)
	return out
}

// elsewhere reports whether a call of the Controller service is about another node
// than the one that the volume is attached to.
func elsewhere(c *call, v *Volume) bool {
	r, ok := c.req.(interface{ GetNodeId() string })
	return ok && r.GetNodeId() != "" && v.NodeID != "" && r.GetNodeId() != v.NodeID
}

// volumeContext must be the volume's; to a publication the CO may add facts about
// the pod, and must if the CSIDriver object asks for them.
func (j *judge) volumeContext(c *call, v *Volume, got map[string]string) {
	plain, info := map[string]string{}, 0
	for key, value := range own(got) {
		if strings.HasPrefix(key, reserved) {
			info++
		} else {
			plain[key] = value
		}
	}
	if !v.Ephemeral && !maps.Equal(plain, v.Context) {
		c.breach(codes.InvalidArgument, "N-40", "volume_context is %v, the volume's is %v", plain, v.Context)
	}
	if j.script.PodInfo == nil {
		return
	}
	if !*j.script.PodInfo {
		if info > 0 {
			c.breach(codes.InvalidArgument, "N-40", "volume_context has keys of the pod, which the CSIDriver does not ask for")
		}
		return
	}
	for _, key := range []string{"pod.name", "pod.namespace", "pod.uid", "serviceAccount.name", "ephemeral"} {
		if _, ok := got[reserved+key]; !ok {
			c.breach(codes.InvalidArgument, "N-40", "volume_context lacks %s%s, which the CSIDriver object asks for", reserved, key)
		}
	}
}

// same: a repeated call repeats its request.
func (c *call) same(f Fact) {
	if (f.Phase == Maybe || f.Phase == Present) && f.Request != c.request {
		c.breach(codes.AlreadyExists, "N-59", "the request differs from the one before it:\n%s\n%s", f.Request, c.request)
	}
}

// required: a required field must be set.
func (c *call) required(field, value string) {
	if value == "" {
		c.breach(codes.InvalidArgument, "N-24", "%s is not set", field)
	}
}

func (j *judge) node() string {
	if j.script.NodeID != "" {
		return j.script.NodeID
	}
	return j.nodeID
}
