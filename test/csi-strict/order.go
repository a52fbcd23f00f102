package csistrict

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// madeBy returns the key of the object that a call makes, which stays while the answer is open, or ""
// for other calls.
func madeBy(c *call) string {
	switch r := c.req.(type) {
	case *csi.CreateVolumeRequest:
		return "volume " + r.GetName()
	case *csi.CreateSnapshotRequest:
		return "snapshot " + r.GetName()
	case *csi.CreateVolumeGroupSnapshotRequest:
		return "group " + r.GetName()
	case *csi.ControllerModifyVolumeRequest:
		return "attributes of " + r.GetVolumeId()
	}
	return ""
}

// unanswered: a call whose answer its caller did not get is repeated unchanged (N-59), unless the
// object that it makes was deleted since (N-26).
func (j *judge) unanswered(c *call) {
	if request, open := j.open[madeBy(c)]; open && request != c.request {
		c.breach(codes.InvalidArgument, "N-59", "%s again, with other fields, and the one before was not answered: %s", c.name, request)
	}
}

// answered records whether the caller knows how the call ended.
func (j *judge) answered(c *call, code codes.Code, heard bool) {
	key := madeBy(c)
	switch {
	case key == "":
	case !heard, code == codes.DeadlineExceeded, code == codes.Canceled:
		j.open[key] = c.request
	case code != codes.Aborted:
		delete(j.open, key)
	}
	for _, source := range sourcesOf(c.req) {
		delete(j.cuts, source)
	}
	switch r := c.req.(type) {
	case *csi.DeleteVolumeRequest: // names are ids here
		delete(j.open, "volume "+r.GetVolumeId())
		delete(j.open, "attributes of "+r.GetVolumeId())
	case *csi.DeleteSnapshotRequest:
		delete(j.open, "snapshot "+r.GetSnapshotId())
	case *csi.DeleteVolumeGroupSnapshotRequest:
		delete(j.open, "group "+r.GetGroupSnapshotId())
	}
}

// sourcesOf returns the volumes that a call makes snapshots of.
func sourcesOf(req proto.Message) []string {
	switch r := req.(type) {
	case *csi.CreateSnapshotRequest:
		return []string{r.GetSourceVolumeId()}
	case *csi.CreateVolumeGroupSnapshotRequest:
		return r.GetSourceVolumeIds()
	}
	return nil
}

// cutting: a change of a volume and a snapshot of it, alone or in a group, are not made at once (N-21).
func (j *judge) cutting(c *call) {
	sources := sourcesOf(c.req)
	for _, source := range sources {
		if other := j.inFlight[source]; j.cuts[source] || other != nil && changes(other.name) {
			c.breach(codes.OK, "N-21", "%s arrived while another call is in flight for volume %s", c.name, source)
		}
	}
	for _, source := range sources { // after the check of all: a source that is named twice is another breach
		j.cuts[source] = true
	}
	if changes(c.name) && j.cuts[c.volume] {
		c.breach(codes.OK, "N-21", "%s arrived while a snapshot of the volume is being made", c.name)
	}
}

// changes reports whether a call of the Controller service changes a volume.
func changes(name string) bool {
	return name == "DeleteVolume" || name == "ControllerExpandVolume" || name == "ControllerModifyVolume"
}

// modify: ControllerModifyVolume.
func (j *judge) modify(c *call, _ *Volume) {
	if !j.told.can("MODIFY_VOLUME") {
		c.breach(codes.Unimplemented, "N-13", "ControllerModifyVolume, and the driver has no MODIFY_VOLUME")
	}
}
