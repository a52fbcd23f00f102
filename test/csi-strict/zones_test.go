package csistrict

import (
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// on makes a call that arrives on a node.
func (k *court) on(node string, req proto.Message) []string {
	k.node = node
	defer func() { k.node = "" }()
	return k.call(req, codes.OK, seen{staging: true, parent: true})
}

// stageAt is a request to stage at a path.
func stageAt(path string) *csi.NodeStageVolumeRequest {
	r := stage()
	r.StagingTargetPath = path
	return r
}

func attachTo(node string) *csi.ControllerPublishVolumeRequest {
	r := attach()
	r.NodeId = node
	r.VolumeContext[provisionerKey] = "1-2-provisioner"
	return r
}

func detachFrom(node string) *csi.ControllerUnpublishVolumeRequest {
	return &csi.ControllerUnpublishVolumeRequest{VolumeId: "v", NodeId: node}
}

// A shared volume is used only where it is attached, on each node at a path of that
// node's own; it is not attached to a second node, nor detached from the first while
// it is staged there. A detachment from a node that does not have it does not count.
func TestNodesThatShareTheStorage(t *testing.T) {
	k := newCourt(Script{})
	k.zones = map[string]string{"a": "east", "b": "east"}
	const atA, atB = "/a/staging", "/b/staging"
	unstageAt := func(path string) *csi.NodeUnstageVolumeRequest {
		return &csi.NodeUnstageVolumeRequest{VolumeId: "v", StagingTargetPath: path}
	}
	for i, step := range []struct {
		node string
		req  proto.Message
		want string
	}{
		{"", attachTo("c"), "N-103"},
		{"", attachTo("a"), ""},
		{"b", stageAt(atB), "N-53"},
		{"a", stageAt(atA), ""},
		{"", attachTo("b"), "N-104"},
		{"", detachFrom("b"), ""},
		{"", detachFrom("a"), "N-104"},
		{"a", unstageAt(atA), ""},
		{"", detachFrom("a"), ""},
		{"a", stageAt(atA), "N-53"},
		{"", attachTo("b"), ""},
		{"b", stageAt(atB), ""},
		{"a", unstageAt(atA), "N-55"},
	} {
		got := k.on(step.node, step.req)
		if step.want == "" && len(got) > 0 || step.want != "" && !slices.Contains(got, step.want) {
			t.Errorf("step %d, %T on node %q: breaks %q, want %q", i, step.req, step.node, got, step.want)
		}
		if r, ok := step.req.(*csi.ControllerPublishVolumeRequest); ok && step.want == "" { // as the Controller service does
			k.model.Volumes["v"].NodeID = r.GetNodeId()
		}
	}
}
