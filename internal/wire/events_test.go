package wire

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/stats"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
)

// refusing is a driver that fails until the test sets well.
type refusing struct {
	manager.Driver
	well atomic.Bool
}

func (d *refusing) answer(call string) error {
	if d.well.Load() {
		return nil
	}
	return &state.CallError{Outcome: state.Failed, Call: call, Code: "Internal", Err: errors.New("the array is on fire")}
}

func (d *refusing) Publish(_ context.Context, v state.Volume, pod state.PodUID) (time.Time, error) {
	return time.Time{}, errors.Join(d.answer("NodePublishVolume"), os.MkdirAll(v.Mounts[pod].Target, 0o755))
}

func (d *refusing) Unpublish(_ context.Context, v state.Volume, pod state.PodUID) error {
	return os.Remove(v.Mounts[pod].Target)
}

func (d *refusing) Expand(_ context.Context, _ state.Volume, _ state.PodUID, bytes int64) (int64, error) {
	return bytes, d.answer("NodeExpandVolume")
}

// ofCluster returns the objects of a cluster's pod with one volume of driver d, which the cluster has expanded.
func ofCluster() (*corev1.Pod, *corev1.PersistentVolumeClaim, *corev1.PersistentVolume, *storagev1.CSIDriver) {
	no, size := false, func(s string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(s)}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web-uid"}, Spec: corev1.PodSpec{
		NodeName: "n1", Containers: []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/d"}}}},
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}},
	}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", UID: "claim-uid"}, Spec: corev1.PersistentVolumeClaimSpec{
		VolumeName: "pv", Resources: corev1.VolumeResourceRequirements{Requests: size("2Gi")},
	}, Status: corev1.PersistentVolumeClaimStatus{
		Phase: corev1.ClaimBound, Capacity: size("1Gi"), AllocatedResources: size("2Gi"),
		AllocatedResourceStatuses: map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: corev1.PersistentVolumeClaimNodeResizePending},
	}}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
		Capacity: size("2Gi"), ClaimRef: &corev1.ObjectReference{Namespace: "default", Name: "c", UID: "claim-uid"},
		AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d.example", VolumeHandle: "h"}},
	}}
	return pod, claim, pv, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d.example"}, Spec: storagev1.CSIDriverSpec{AttachRequired: &no}}
}

// written waits until the server has an event, and returns its text.
func written(t *testing.T, s *fakeapi.Server, kind, reason string) string {
	t.Helper()
	core, _ := s.Clients(nil)
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for over := within(t); ; {
		list, err := core.Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list.Items {
			if e.InvolvedObject.Kind == kind && e.Reason == reason {
				if uid := string(e.InvolvedObject.UID); uid != "web-uid" && uid != "claim-uid" && uid != "pv-uid" {
					t.Errorf("event %s is about uid %q", reason, uid)
				}
				return e.Message
			}
		}
		select {
		case <-look.C:
		case <-over.Done():
			t.Fatalf("no event %s about a %s: %v", reason, kind, list.Items)
		}
	}
}

// Events tell users of the API server in the words of the explanation what fails, succeeds or takes long, and how
// healthy the volume is.
//
// Items: I03, I12, O03, O09.
func TestEventsOfAClustersPod(t *testing.T) {
	api, c := fakeapi.New(), dirs(t)
	pod, claim, pv, driver := ofCluster()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n"}}
	api.Put(node, driver, claim, pv, pod)
	c.Cluster = &rest.Config{Host: "http://api.test", Transport: api, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	n, _ := start(t, c)
	bad := &refusing{}
	n.manager.DriverUp(manager.DriverInfo{Name: "d.example", Expand: true}, bad)

	text := written(t, api, "Pod", "FailedMount")
	if want := server.VolumeSentence("data", "NodePublishVolume answered Internal: the array is on fire"); text != want {
		t.Errorf("event %q, want %q", text, want)
	}
	// The volume waits or is retried; whenever it waits, the explanation says so.
	for over := within(t); ; {
		p, _ := n.manager.Pod("web-uid")
		s, _ := n.manager.Volume(p.Volumes[0].ID)
		f := server.Facts{Pods: []manager.PodStatus{p}, Volumes: []manager.VolumeStatus{s}, Drivers: n.manager.Drivers(), Now: time.Now()}
		e, err := server.Explain(f, "pod", "default/web")
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(e.Lines, func(l server.Line) bool { return l.Label == "because" && server.VolumeSentence("data", l.Text) == text }) {
			break
		}
		if over.Err() != nil {
			t.Fatalf("explained otherwise: %s", e)
		}
		time.Sleep(time.Millisecond) // look again: a call in flight has no cause
	}
	bad.well.Store(true)
	n.manager.RetryNow("d.example^h")
	if text := written(t, api, "Pod", "SuccessfulMountVolume"); !strings.Contains(text, "volume data: ") {
		t.Errorf("event %q", text)
	}
	for _, kind := range []string{"Pod", "PersistentVolumeClaim"} {
		if text := written(t, api, kind, "FileSystemResizeSuccessful"); !strings.Contains(text, "expanded") {
			t.Errorf("event %q", text)
		}
	}
	n.cluster.Health(stats.Status{Key: "d.example^h", Health: stats.Abnormal, Conditions: []stats.Condition{{Message: "a disk is broken"}}})
	if text := written(t, api, "Pod", "VolumeConditionAbnormal"); text != server.VolumeSentence("data", "a disk is broken") {
		t.Errorf("event %q", text)
	}
	n.cluster.Health(stats.Status{Key: "d.example^h", Health: stats.Healthy})
	written(t, api, "Pod", "VolumeConditionNormal")
}

// Items: I09.
func TestAFailedExpansionIsInClaimAndEvents(t *testing.T) {
	api, c := fakeapi.New(), dirs(t)
	pod, claim, pv, driver := ofCluster()
	api.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n"}}, driver, claim, pv, pod)
	c.Cluster = &rest.Config{Host: "http://api.test", Transport: api, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	n, _ := start(t, c)
	n.manager.DriverUp(manager.DriverInfo{Name: "d.example", Expand: true}, infeasible{})
	want := server.VolumeSentence("pv", "NodeExpandVolume answered OutOfRange: the array is full")
	if text := written(t, api, "PersistentVolumeClaim", "VolumeResizeFailed"); text != want {
		t.Errorf("event %q, want %q", text, want)
	}
	// The pod does not wait for an expansion that cannot succeed, and the claim says so.
	if err := n.Manager().WaitForAttachAndMount(within(t), "web-uid"); err != nil {
		t.Error(err)
	}
	for over := within(t); ; {
		var is corev1.PersistentVolumeClaim
		api.Get("persistentvolumeclaims", "default/c", &is)
		if is.Status.AllocatedResourceStatuses[corev1.ResourceStorage] == corev1.PersistentVolumeClaimNodeResizeInfeasible && is.Status.Conditions[0].Message == "NodeExpandVolume answered OutOfRange: the array is full" {
			break
		}
		if over.Err() != nil {
			t.Fatalf("claim: %+v", is.Status)
		}
		time.Sleep(time.Millisecond) // look again
	}
}

// If a disk's file system differs from its PersistentVolume's, an event on the PersistentVolume says so, too.
//
// Items: C35.
func TestAnotherFileSystemIsToldOnThePersistentVolume(t *testing.T) {
	api, c := fakeapi.New(), dirs(t)
	pod, claim, pv, driver := ofCluster()
	pv.UID = "pv-uid"
	api.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n"}}, driver, claim, pv, pod)
	c.Cluster = &rest.Config{Host: "http://api.test", Transport: api, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	n, _ := start(t, c)
	n.manager.DriverUp(manager.DriverInfo{Name: "d.example"}, mismatched{})
	if text := written(t, api, "PersistentVolume", "FailedMountOnFilesystemMismatch"); !strings.Contains(text, "ext4 is asked for, and the disk has xfs") {
		t.Errorf("event %q", text)
	}
	written(t, api, "Pod", "FailedMount")
}

// An event tells a pod's user which files could not be given to the pod's fsGroup.
func TestFilesWithoutTheirGroupAreToldOnThePod(t *testing.T) {
	api, c := fakeapi.New(), dirs(t)
	pod, claim, pv, driver := ofCluster()
	api.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n"}}, driver, claim, pv, pod)
	c.Cluster = &rest.Config{Host: "http://api.test", Transport: api, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	n, _ := start(t, c)
	n.manager.DriverUp(manager.DriverInfo{Name: "d.example"}, &partly{})
	written(t, api, "Pod", "SuccessfulMountVolume")
	if text := written(t, api, "Pod", "VolumePermissionChangeFailed"); !strings.Contains(text, "chown a: operation not permitted") {
		t.Errorf("event %q", text)
	}
}

// partly is a driver that mounts its volume and cannot give all files to the group.
type partly struct{ refusing }

func (*partly) Publish(_ context.Context, v state.Volume, pod state.PodUID) (time.Time, error) {
	if err := os.MkdirAll(v.Mounts[pod].Target, 0o755); err != nil {
		return time.Time{}, err
	}
	return time.Time{}, &state.CallError{Outcome: state.Partly, Call: "fsGroup", Err: errors.New("chown a: operation not permitted")}
}

// mismatched is a driver whose disk has another file system.
type mismatched struct{ manager.Driver }

func (mismatched) Publish(context.Context, state.Volume, state.PodUID) (time.Time, error) {
	return time.Time{}, &state.CallError{Outcome: state.Refused, Call: "Publish", Code: state.FilesystemMismatch, Err: errors.New("fsType: ext4 is asked for, and the disk has xfs")}
}

// infeasible is a driver that can expand no volume.
type infeasible struct{ manager.Driver }

func (infeasible) Publish(_ context.Context, v state.Volume, pod state.PodUID) (time.Time, error) {
	return time.Time{}, os.MkdirAll(v.Mounts[pod].Target, 0o755)
}

func (infeasible) Expand(context.Context, state.Volume, state.PodUID, int64) (int64, error) {
	return 0, &state.CallError{Outcome: state.Final, Call: "NodeExpandVolume", Code: "OutOfRange", Err: errors.New("the array is full")}
}

// If a volume does not grow on this node, an event on its claim says so, too: the person who asked for more space
// looks there.
func TestAVolumeThatDoesNotGrowIsToldOnPodAndClaim(t *testing.T) {
	api, c := fakeapi.New(), dirs(t)
	pod, claim, pv, driver := ofCluster()
	claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] = corev1.PersistentVolumeClaimNodeResizeInfeasible
	api.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n"}}, driver, claim, pv, pod)
	c.Cluster = &rest.Config{Host: "http://api.test", Transport: api, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	c.waitPatience = 50 * time.Millisecond
	n, _ := start(t, c)
	n.manager.DriverUp(manager.DriverInfo{Name: "d.example", Expand: true}, &infeasible{})
	ofPod := written(t, api, "Pod", "FileSystemResizeFailed")
	ofClaim := written(t, api, "PersistentVolumeClaim", "FileSystemResizeFailed")
	if sentence, ok := strings.CutPrefix(ofPod, "volume data: "); !ok || ofClaim != "volume pv: "+sentence {
		t.Errorf("on the pod %q, on the claim %q", ofPod, ofClaim)
	}
}
