package containers

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/subpath"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// staying is a manager with one volume, which stays mounted.
type staying struct{ mounted manager.MountedVolume }

func (staying) Settle(context.Context) error    { return nil }
func (staying) Volumes() []manager.VolumeStatus { return nil }

func (s staying) GetMountedVolumesForPod(state.PodUID) map[string]manager.MountedVolume {
	return map[string]manager.MountedVolume{s.mounted.Name: s.mounted}
}

func (s staying) Pod(state.PodUID) (manager.PodStatus, bool) {
	return manager.PodStatus{Volumes: []manager.PodVolumeStatus{{Names: []string{s.mounted.Name}, ID: "id"}}}, true
}

func (s staying) Volume(id state.VolumeID) (manager.VolumeStatus, bool) {
	return manager.VolumeStatus{Volume: state.Volume{ID: id, Spec: &state.Spec{Driver: s.mounted.Driver}}}, id == "id"
}

// A bind counts as a call of its volume. As a call of no volume, binds that hang would take the helpers
// that end the freeze for which they wait.
func TestABindCountsTowardsItsVolume(t *testing.T) {
	hang, begun := make(chan struct{}), make(chan struct{})
	service := subpath.Helper()
	service.Handlers["hang"] = func(context.Context, []byte) ([]byte, error) { close(begun); <-hang; return nil, nil }
	helpers := isolate.New(isolate.Config{Service: service, Limit: 5}) // one call of no volume
	t.Cleanup(func() { close(hang); helpers.Close() })
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { _, err := helpers.Do(ctx, "hangs", "hang", nil); left <- err }()
	<-begun
	leave()
	<-left
	if _, err := helpers.Do(t.Context(), "other", "none", nil); !errors.Is(err, isolate.ErrLimit) {
		t.Fatalf("a second call of no volume: %v, want ErrLimit", err)
	}
	layout := state.Layout{Root: t.TempDir()}
	kernel := mount.New(layout.Root)
	t.Cleanup(func() { kernel.UnmountTree(context.WithoutCancel(t.Context()), layout.Root) })
	path := layout.BuiltinTarget("kubernetes.io/empty-dir", uid, "data")
	if err := os.MkdirAll(path, 0o750); err != nil {
		t.Fatal(err)
	}
	giver := New(Config{
		Parts:   &Parts{Layout: layout, Kernel: kernel, Subpaths: subpath.New(layout, kernel, helpers)},
		Catalog: newCatalog(t, layout, "data"),
		Volumes: staying{manager.MountedVolume{Name: "data", HostPath: path, Driver: "kubernetes.io/empty-dir"}},
	})
	if _, err := giver.ContainerMounts(t.Context(), server.Container{Namespace: "default", Pod: "web", Name: "app"}); err != nil {
		t.Error(err)
	}
}
