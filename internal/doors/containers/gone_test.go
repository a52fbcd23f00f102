package containers

import (
	"context"
	"errors"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/subpath"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
)

func TestMain(m *testing.M) { drivertest.Main(m) }

// leaving is a manager that unmounts the pod's volumes once it has shown them. The client goes then too.
type leaving struct {
	mounted map[string]manager.MountedVolume
	cancel  func()
}

func (l *leaving) Settle(ctx context.Context) error {
	if l.mounted == nil {
		l.cancel()
	}
	return ctx.Err()
}

func (*leaving) Pod(state.PodUID) (s manager.PodStatus, ok bool)         { return s, ok }
func (*leaving) Volume(state.VolumeID) (s manager.VolumeStatus, ok bool) { return s, ok }
func (*leaving) Volumes() []manager.VolumeStatus                         { return nil }

func (l *leaving) GetMountedVolumesForPod(state.PodUID) map[string]manager.MountedVolume {
	shown := l.mounted
	l.mounted = nil
	return shown
}

// sink takes a catalog's pods.
type sink struct{}

func (sink) SetPod(state.PodWant)   {}
func (sink) RemovePod(state.PodUID) {}
func (sink) SourceSynced(string)    {}

const uid = "7f3c2a10-0000-4000-8000-000000000001"

// newCatalog returns a catalog with a pod whose container mounts a part of each volume.
func newCatalog(t *testing.T, layout state.Layout, volumes ...string) *source.Catalog {
	t.Helper()
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: resolve.KindPod},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: types.UID(uid)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "i"}}},
	}
	for _, volume := range volumes {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
			Name: volume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
		})
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{
			Name: volume, MountPath: "/" + volume, SubPath: "part",
		})
	}
	catalog := source.New(source.Config{Resolve: resolve.Config{Layout: layout, NodeName: "n1"}, Sink: sink{}})
	if err := catalog.Put("test", pod); err != nil {
		t.Fatal(err)
	}
	return catalog
}

// No subpath stays of a volume that was unmounted while its container was given its mounts: it would keep the file
// system in use, and no unmount would remove it. That holds for each volume of the pod, and if a later mount fails.
func TestNoSubpathStaysOfVolumesThatHaveGone(t *testing.T) {
	for _, name := range []string{"all are bound", "the last cannot be bound"} {
		t.Run(name, func(t *testing.T) {
			layout := state.Layout{Root: t.TempDir()}
			kernel := mount.New(layout.Root)
			t.Cleanup(func() {
				if err := kernel.UnmountTree(context.WithoutCancel(t.Context()), layout.Root); err != nil {
					t.Error(err)
				}
			})
			mounted := map[string]manager.MountedVolume{}
			for _, volume := range []string{"one", "two", "three"} {
				path := layout.BuiltinTarget("kubernetes.io/empty-dir", uid, volume)
				mounted[volume] = manager.MountedVolume{Name: volume, HostPath: path, Driver: "kubernetes.io/empty-dir"}
				if volume == "three" && name != "all are bound" {
					continue // there is no such directory
				}
				if err := os.MkdirAll(path, 0o750); err != nil {
					t.Fatal(err)
				}
			}
			binder := subpath.New(layout, kernel, isolate.New(isolate.Config{Service: subpath.Helper()}))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			giver := New(Config{
				Parts:   &Parts{Layout: layout, Kernel: kernel, Subpaths: binder},
				Catalog: newCatalog(t, layout, "one", "two", "three"), Volumes: &leaving{mounted, cancel},
			})
			_, err := giver.ContainerMounts(ctx, server.Container{Namespace: "default", Pod: "web", Name: "app"})
			if !errors.Is(err, server.ErrConflict) {
				t.Errorf("got %v, want a conflict", err)
			}
			if left, err := binder.Places(); err != nil || len(left) != 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}
