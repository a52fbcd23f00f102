package csistrict

import (
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// The rules of CSI 1.13 for groups that have no parity item.
const (
	ruleMembers = "G-1" // snapshot_ids are those of the group
	ruleAlone   = "G-2" // a member is deleted with its group only
)

// grouping: group calls are made only if the driver has the ability.
func (j *judge) grouping(c *call) {
	if !j.told.groups() {
		c.breach(codes.Unimplemented, "N-13", "%s, and the driver has no %s in %s", c.name, groupSnapshots, groupService)
	}
}

// groupCapabilities: GroupControllerGetCapabilities.
func (j *judge) groupCapabilities(c *call, _ *Volume) {
	if !j.told.can(groupService) {
		c.breach(codes.Unimplemented, "N-13", "%s, and the driver has no %s", c.name, groupService)
	}
}

// cutGroup: CreateVolumeGroupSnapshot.
func (j *judge) cutGroup(c *call, _ *Volume) {
	req := c.req.(*csi.CreateVolumeGroupSnapshotRequest)
	j.grouping(c)
	c.required("name", req.GetName())
	sources := req.GetSourceVolumeIds()
	if len(sources) == 0 {
		c.required("source_volume_ids", "")
	}
	for i, id := range sources {
		c.required("source_volume_ids", id)
		if id != "" && slices.Contains(sources[:i], id) {
			c.breach(codes.InvalidArgument, "N-24", "source_volume_ids has volume %s twice", id)
		}
	}
	if g, ok := j.model.Groups[req.GetName()]; ok && !same(g.Sources, sources) {
		c.breach(codes.AlreadyExists, "N-59", "group %s is of volumes %q, and is asked for of %q", g.ID, g.Sources, sources)
	}
}

// removeGroup: DeleteVolumeGroupSnapshot.
func (j *judge) removeGroup(c *call, _ *Volume) {
	req := c.req.(*csi.DeleteVolumeGroupSnapshotRequest)
	j.members(c, req.GetGroupSnapshotId(), req.GetSnapshotIds())
}

// showGroup: GetVolumeGroupSnapshot.
func (j *judge) showGroup(c *call, _ *Volume) {
	req := c.req.(*csi.GetVolumeGroupSnapshotRequest)
	j.members(c, req.GetGroupSnapshotId(), req.GetSnapshotIds())
}

// members: a call for an existing group has all of its snapshots and no others.
func (j *judge) members(c *call, id string, snapshots []string) {
	j.grouping(c)
	c.required("group_snapshot_id", id)
	if len(snapshots) == 0 {
		c.breach(codes.OK, "N-24", "snapshot_ids is not set") // the driver answers that the group is gone
	}
	if g, ok := j.model.Groups[id]; ok && !same(g.Snapshots, snapshots) {
		c.breach(codes.InvalidArgument, ruleMembers, "snapshot_ids is %q, and those of group %s are %q", snapshots, id, g.Snapshots)
	}
}

// removeSnapshot: DeleteSnapshot.
func (j *judge) removeSnapshot(c *call, _ *Volume) {
	req := c.req.(*csi.DeleteSnapshotRequest)
	if s, ok := j.model.Snapshots[req.GetSnapshotId()]; ok && s.Group != "" {
		c.breach(codes.InvalidArgument, ruleAlone, "DeleteSnapshot of %s, which is of group %s", s.ID, s.Group)
	}
}

// same reports whether two lists have the same ids, in any order.
func same(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
