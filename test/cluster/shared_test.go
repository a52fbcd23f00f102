//go:build cluster

package cluster

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
)

// shared is storage that nodes share, behind the real sidecars and the strict driver. The
// strict driver judges how the cluster and csi-volmgr use the storage.
type shared struct {
	t        *testing.T
	name     string
	dir      string
	driver   *csistrict.Driver
	sidecars map[string]*sidecar
}

// storageConfig describes the storage of a test.
type storageConfig struct {
	name     string
	zones    map[string]string             // the zone of each node
	object   *storagev1.CSIDriverSpec      // the CSIDriver object's spec; nil for no object
	class    func(*storagev1.StorageClass) // changes the class; nil leaves it
	script   csistrict.Script
	sidecars []string
}

// newShared makes storage whose volumes are attached. zones has the zone of each node.
func newShared(t *testing.T, name string, zones map[string]string, sidecars ...string) *shared {
	t.Helper()
	c := attached(name)
	c.zones, c.sidecars = zones, sidecars
	return makeShared(t, c)
}

// makeShared makes the storage and its class, whose volumes are made where their first pod
// runs, and starts the sidecars. The test fails for every broken rule and for everything
// that was not removed.
func makeShared(t *testing.T, c storageConfig) *shared {
	t.Helper()
	s := &shared{t: t, name: c.name, dir: control.path("shared-" + c.name), sidecars: map[string]*sidecar{}}
	must(t, os.Mkdir(s.dir, 0o700))
	if c.object != nil {
		_, err := control.client.StorageV1().CSIDrivers().Create(t.Context(), &storagev1.CSIDriver{
			ObjectMeta: metav1.ObjectMeta{Name: c.name}, Spec: *c.object,
		}, metav1.CreateOptions{})
		must(t, err)
	}
	yes, late := true, storagev1.VolumeBindingWaitForFirstConsumer
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: c.name}, Provisioner: c.name, VolumeBindingMode: &late, AllowVolumeExpansion: &yes,
	}
	if c.class != nil {
		c.class(class)
	}
	_, err := control.client.StorageV1().StorageClasses().Create(t.Context(), class, metav1.CreateOptions{})
	must(t, err)
	must(t, csistrict.WriteScript(s.dir, c.script))
	s.driver, err = csistrict.New(csistrict.Config{Name: c.name, NodeID: "controller", StateDir: s.dir, Zones: c.zones})
	must(t, err)
	socket := filepath.Join(s.dir, "csi.sock")
	s.run(t, func(ctx context.Context) error { return s.driver.Serve(ctx, socket) })
	t.Cleanup(s.judge)
	for _, sidecar := range c.sidecars {
		s.sidecars[sidecar] = startSidecar(t, s.dir, sidecar, nil, "--csi-address="+socket)
	}
	return s
}

// run runs serve, which serves a socket of the driver, until the test ends.
func (s *shared) run(t *testing.T, serve func(context.Context) error) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// serve runs the driver on the node until the test ends, and waits until the CSINode has
// it.
func (s *shared) serve(n *node) {
	n.t.Helper()
	socket := filepath.Join(n.dir, "root", "plugins", s.name, "csi.sock")
	must(n.t, os.MkdirAll(filepath.Dir(socket), 0o755))
	s.run(n.t, func(ctx context.Context) error { return s.driver.ServeNode(ctx, socket, n.name) })
	s.run(n.t, func(ctx context.Context) error {
		return s.driver.Register(ctx, filepath.Join(n.dir, "root", "plugins_registry"), socket)
	})
	n.hasDriver(s.name)
}

// judge fails the test for every broken rule, such as N-104: no volume is detached or
// deleted that is or may be on a node.
func (s *shared) judge() {
	events, err := csistrict.ReadTranscript(s.dir)
	if err != nil || len(events) == 0 {
		s.t.Errorf("transcript of %s: %d events, %v", s.name, len(events), err)
	}
	for _, b := range csistrict.Breaches(events) {
		s.t.Errorf("breach of %s by %s of %s: %s", b.Rule, b.Call, b.Volume, b.Text)
	}
	if s.t.Failed() {
		for _, e := range events {
			s.t.Logf("%s %s %s %s %s %s", e.Time.Format("05.000"), e.Event, e.Call, e.Volume, e.Code, e.Text)
		}
		return
	}
	for _, left := range s.model().Left() {
		s.t.Errorf("never taken back: %s", left)
	}
}

// model returns what the driver knows about its volumes.
func (s *shared) model() csistrict.Model {
	m, err := csistrict.ReadModel(s.dir)
	if err != nil {
		s.t.Error(err)
	}
	return m
}

// claim makes a claim for a volume of the storage with the size. from, if not nil, is the
// source of the content.
func (s *shared) claim(name, size string, from *corev1.TypedLocalObjectReference) {
	s.t.Helper()
	_, err := control.client.CoreV1().PersistentVolumeClaims("default").Create(s.t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &s.name, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, DataSource: from,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse(size)}},
		},
	}, metav1.CreateOptions{})
	must(s.t, err)
}

// unclaim deletes the claim and waits until the provisioner has deleted its volume.
func (s *shared) unclaim(n *node, name string) {
	s.t.Helper()
	n.eventually("the volume of claim "+name+" is deleted", s.unclaimed(name))
}

// unclaimed deletes the claim, and returns a function that reports whether its volume is
// deleted.
func (s *shared) unclaimed(name string) (deleted func() bool) {
	s.t.Helper()
	id := s.volume(name).ID
	must(s.t, control.client.CoreV1().PersistentVolumeClaims("default").Delete(s.t.Context(), name, metav1.DeleteOptions{}))
	return func() bool { return s.model().Volumes[id] == nil }
}

// volume returns what the driver knows about the claim's volume.
func (s *shared) volume(claim string) csistrict.Volume {
	s.t.Helper()
	c, err := control.client.CoreV1().PersistentVolumeClaims("default").Get(s.t.Context(), claim, metav1.GetOptions{})
	must(s.t, err)
	v := s.model().Volumes[c.Spec.VolumeName]
	if v == nil {
		s.t.Fatalf("claim %s has volume %q, and the driver has %v", claim, c.Spec.VolumeName, s.model().Volumes)
	}
	return *v
}

// count returns how often the call has begun, or was answered OK (EventEnd).
func (s *shared) count(call, event string) (n int) {
	s.t.Helper()
	events, err := csistrict.ReadTranscript(s.dir)
	must(s.t, err)
	for _, e := range events {
		if e.Event == event && e.Call == call && (event != csistrict.EventEnd || e.Code == "OK") {
			n++
		}
	}
	return n
}
