//go:build cluster

package cluster

import (
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
)

// scene is one of Kubernetes' scenarios: storage with its own driver, on a node that runs
// other scenes at the same time.
type scene struct {
	*shared
	n *node
}

// in returns the node for a subtest, whose failures are the subtest's.
func (n *node) in(t *testing.T) *node {
	of := *n
	of.t = t
	return &of
}

// begin makes the storage, with the node in its only zone, and runs the driver there.
func begin(t *testing.T, n *node, c storageConfig) *scene {
	t.Helper()
	c.zones = map[string]string{n.name: "east"}
	s := &scene{shared: makeShared(t, c), n: n.in(t)}
	s.serve(s.n)
	return s
}

// unattached returns storage whose driver attaches nothing; change may change its CSIDriver
// object.
func unattached(name string, change func(*storagev1.CSIDriverSpec)) storageConfig {
	no := false
	c := storageConfig{name: name, object: &storagev1.CSIDriverSpec{AttachRequired: &no}, script: csistrict.Script{Attach: &no}}
	if change != nil {
		change(c.object)
	}
	return c
}

// attached returns storage whose volumes external-attacher attaches.
func attached(name string, sidecars ...string) storageConfig {
	yes := true
	return storageConfig{name: name, object: &storagev1.CSIDriverSpec{AttachRequired: &yes}, sidecars: append(sidecars, "csi-attacher")}
}

// static makes a volume in the storage, and a claim with the same name that is bound to it.
func (s *shared) static(name string, change func(*corev1.PersistentVolume)) {
	s.t.Helper()
	conn, err := grpc.NewClient("unix:"+filepath.Join(s.dir, "csi.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(s.t, err)
	defer conn.Close()
	made, err := csi.NewControllerClient(conn).CreateVolume(s.t.Context(), &csi.CreateVolumeRequest{Name: name, VolumeCapabilities: []*csi.VolumeCapability{{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}}})
	must(s.t, err)
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: s.name, Capacity: corev1.ResourceList{"storage": resource.MustParse("1Gi")},
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: "default", Name: name},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: s.name, VolumeHandle: made.GetVolume().GetVolumeId(), VolumeAttributes: made.GetVolume().GetVolumeContext(),
			}},
		},
	}
	if change != nil {
		change(pv)
	}
	_, err = control.client.CoreV1().PersistentVolumes().Create(s.t.Context(), pv, metav1.CreateOptions{})
	must(s.t, err)
	_, err = control.client.CoreV1().PersistentVolumeClaims("default").Create(s.t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &s.name, VolumeName: name, AccessModes: pv.Spec.AccessModes, VolumeMode: pv.Spec.VolumeMode,
			Resources: corev1.VolumeResourceRequirements{Requests: pv.Spec.Capacity},
		},
	}, metav1.CreateOptions{})
	must(s.t, err)
}

// inline returns an inline volume.
func (s *shared) inline(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: s.name}}}
}

// up makes a pod with the volumes on the scene's node, and waits until it has them.
func (s *scene) up(name string, volumes ...corev1.Volume) {
	s.t.Helper()
	createPod(s.t, podWith(s.n.name, name, volumes...))
	s.n.mounted(name)
}

// down deletes the pods as if their containers had ended, and waits until the driver has
// removed everything that it made.
func (s *scene) down(pods ...string) {
	s.t.Helper()
	for _, pod := range pods {
		deletePod(s.t, pod)
	}
	s.n.eventually("nothing is attached, staged or published", func() bool { return len(s.model().Left()) == 0 })
}

// asked returns the requests of a call, in order.
func asked[M any, P interface {
	*M
	proto.Message
}](s *shared, call string,
) (all []P) {
	s.t.Helper()
	events, err := csistrict.ReadTranscript(s.dir)
	must(s.t, err)
	for _, e := range events {
		if e.Event == csistrict.EventBegin && e.Call == call {
			r := P(new(M))
			must(s.t, protojson.Unmarshal(e.Request, r))
			all = append(all, r)
		}
	}
	return all
}

// publication returns the last request to publish a volume.
func (s *shared) publication() *csi.NodePublishVolumeRequest {
	s.t.Helper()
	all := asked[csi.NodePublishVolumeRequest](s, "NodePublishVolume")
	if len(all) == 0 {
		s.t.Fatal("nothing was published")
	}
	return all[len(all)-1]
}

// says changes the spec of the CSIDriver object, as far as the server allows it.
func (s *shared) says(change func(*storagev1.CSIDriverSpec)) {
	s.t.Helper()
	drivers := control.client.StorageV1().CSIDrivers()
	o, err := drivers.Get(s.t.Context(), s.name, metav1.GetOptions{})
	must(s.t, err)
	change(&o.Spec)
	_, err = drivers.Update(s.t.Context(), o, metav1.UpdateOptions{})
	must(s.t, err)
}
