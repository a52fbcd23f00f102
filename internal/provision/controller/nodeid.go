package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// AttachmentBucket is the journal's bucket with the node id that each volume without a claim here is attached with.
const AttachmentBucket = "attachments"

// attachment is the record of an attached volume that has no claim here. An older csi-volmgr ignores it.
type attachment struct {
	Version int    `json:"v"`
	NodeID  string `json:"nodeID"`
}

const attachmentVersion = 1

func (a attachment) empty() bool { return a.NodeID == "" }

func (a attachment) stamped() attachment {
	a.Version = attachmentVersion
	return a
}

func (a attachment) problem(string) string {
	if a.Version != attachmentVersion || a.NodeID == "" {
		return fmt.Sprintf("version %d with node id %q, want %d with one", a.Version, a.NodeID, attachmentVersion)
	}
	return ""
}

func attachmentBucket() bucket[attachment] { return bucket[attachment]{AttachmentBucket, "attachment"} }

// attachmentKey is the key of a volume in AttachmentBucket. A driver's name has no slash.
func attachmentKey(v state.Volume) Key {
	return Key{Namespace: string(v.Spec.Driver), Name: v.Spec.Handle}
}

// nodeIDs has the node ids that volumes are attached with. Any goroutine may call its methods.
type nodeIDs struct {
	mu sync.Mutex
	// now is what each driver last called this node, since the daemon's start.
	now map[state.DriverName]string
	// of has the node id of each attached volume, by its handle.
	of map[state.DriverName]map[string]string
}

// called notes what a driver calls this node.
func (n *nodeIDs) called(driver state.DriverName, id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now[driver] = id
}

// set notes the node id that a volume is attached with; "" for a volume that is not attached.
func (n *nodeIDs) set(driver state.DriverName, handle, id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if id == "" {
		delete(n.of[driver], handle)
		return
	}
	if n.of[driver] == nil {
		n.of[driver] = map[string]string{}
	}
	n.of[driver][handle] = id
}

// get returns the node id that a volume is attached with, or "".
func (n *nodeIDs) get(driver state.DriverName, handle string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.of[driver][handle]
}

// OtherNodeID says that volumes are attached with another node id than their driver gives this node now.
type OtherNodeID struct {
	Driver state.DriverName
	// Was is the node id that Handles, which is sorted, are attached with, and Is what the driver says now.
	Was, Is string
	Handles []string
}

// maxHandles bounds how many volumes the text of an OtherNodeID names.
const maxHandles = 5

func (o OtherNodeID) String() string {
	named := strings.Join(o.Handles[:min(len(o.Handles), maxHandles)], ", ")
	if more := len(o.Handles) - maxHandles; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("it gives this node the id %q now, and its volumes %s are attached to node id %q: they are "+
		"detached from that one when no pod needs them; if the id has changed by mistake, give the driver the former one",
		o.Is, named, o.Was)
}

// OtherNodeIDs lists the drivers whose node id has changed while volumes are attached with the former one, sorted.
func (c *Controller) OtherNodeIDs() (out []OtherNodeID) {
	n := &c.nodeIDs
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, driver := range slices.Sorted(maps.Keys(n.now)) {
		is, by := n.now[driver], map[string][]string{}
		for handle, id := range n.of[driver] {
			if id != is {
				by[id] = append(by[id], handle)
			}
		}
		for _, was := range slices.Sorted(maps.Keys(by)) {
			slices.Sort(by[was])
			out = append(out, OtherNodeID{Driver: driver, Was: was, Is: is, Handles: by[was]})
		}
	}
	return out
}

// loadAttachments reads the node ids of the volumes without a claim. The id of a record that cannot be read is unknown,
// and the volume is detached from the node id that its driver says.
func (c *Controller) loadAttachments(ctx context.Context) error {
	return attachmentBucket().load(ctx, c.cfg, func(key Key, a attachment, unreadable string) {
		if unreadable == "" {
			c.nodeIDs.set(state.DriverName(key.Namespace), key.Name, a.NodeID)
		}
	})
}

// foreignNodeID returns the node id for the call of a volume without a claim. That of an attach is durable when it
// returns. A detach has the recorded one; a volume that an earlier version attached has none, and the driver's is
// taken.
func (c *Controller) foreignNodeID(ctx context.Context, n *attachCall, d *driver) (string, error) {
	was := c.nodeIDs.get(d.Name, n.volume.Spec.Handle)
	switch {
	case n.verb == detachVolume && was != "":
		return was, nil
	case n.verb == detachVolume, was == d.NodeID, d.NodeID == "":
		return d.NodeID, nil
	}
	return d.NodeID, c.setForeignNodeID(ctx, n.volume, d.NodeID)
}

// setForeignNodeID makes durable with which node id a volume without a claim is attached; "" for none.
func (c *Controller) setForeignNodeID(ctx context.Context, v state.Volume, id string) error {
	if c.nodeIDs.get(v.Spec.Driver, v.Spec.Handle) == id {
		return nil
	}
	if err := attachmentBucket().commit(ctx, c.cfg, map[Key]attachment{attachmentKey(v): {NodeID: id}}); err != nil {
		return err
	}
	c.nodeIDs.set(v.Spec.Driver, v.Spec.Handle, id)
	return nil
}
