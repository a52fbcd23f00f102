package controller

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"strings"
)

// The names that drivers get, and those of the content objects that external-snapshotter would form, are a prefix
// and the object's id.
const (
	volumePrefix       = "pvc-"
	snapshotPrefix     = "snapshot-"
	contentPrefix      = "snapcontent-"
	groupPrefix        = "groupsnapshot-"
	groupContentPrefix = "groupsnapcontent-"
)

// naming is what the names of new volumes and snapshots follow from besides UIDs.
type naming struct {
	// storage is the node's storage id, or "" if it has none.
	storage string
	// missing says why names cannot be formed yet, or is "".
	missing string
}

// id returns what follows the prefix in the names of an object with the UID. UIDs follow from the names of
// objects, and other nodes with the same storage have objects of the same names: the node's storage id tells them
// apart. A node without one has the UID, as nodes of earlier versions.
func (n naming) id(uid string) string {
	if n.storage == "" {
		return uid
	}
	mac := hmac.New(sha256.New, []byte(n.storage))
	mac.Write([]byte(uid))
	b := mac.Sum(nil)[:16]
	b[6] = b[6]&0x0f | 0x80 // version 8: custom (RFC 9562)
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// VolumeName returns the name of the first volume that is made for a claim with the UID; "" until it is chosen
// what names follow from.
func (c *Controller) VolumeName(uid string) string {
	n := c.naming.Load()
	if n == nil {
		return ""
	}
	return volumePrefix + n.id(uid)
}

func (c Claim) volumeName() string { return volumePrefix + c.naming.id(c.UID) + c.numbered("-") }

func (s Snapshot) snapshotName() string { return snapshotPrefix + s.naming.id(s.UID) }

func (s Snapshot) contentName() string { return contentPrefix + s.naming.id(s.UID) }

func (g Group) groupName() string { return groupPrefix + g.naming.id(g.UID) }

func (g Group) contentName() string { return groupContentPrefix + g.naming.id(g.UID) }

// contentName returns the name of the VolumeSnapshotContent, which has the id that the snapshot's name has.
func (r snapshotRecord) contentName() string {
	return contentPrefix + strings.TrimPrefix(r.Name, snapshotPrefix)
}

// contentName returns the name of the VolumeGroupSnapshotContent.
func (r groupRecord) contentName() string {
	return groupContentPrefix + strings.TrimPrefix(r.Name, groupPrefix)
}

// snapshotName returns the name of a member, which a driver without groups gets.
func (r groupRecord) snapshotName(m groupMember) string {
	return snapshotPrefix + strings.TrimPrefix(r.Name, groupPrefix) + "-" + m.id()
}
