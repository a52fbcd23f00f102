package away

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/hostpath"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image/oci"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/local"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest/imagetest"
)

// A kind whose verbs run in a helper keeps the contract of kinds.
func TestKindsInHelpersKeepTheContract(t *testing.T) {
	for kind, hands := range map[state.DriverName]bool{hostpath.Kind: true, local.Kind: false} {
		t.Run(filepath.Base(string(kind)), func(t *testing.T) {
			drivertest.Run(t, func(t *testing.T, l state.Layout) drivertest.Subject {
				dir := l.Root + "-disk" // the same one after a restart
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { os.RemoveAll(dir) })
				config, err := json.Marshal(map[string]string{"path": dir})
				if err != nil {
					t.Fatal(err)
				}
				s := drivertest.Subject{
					Driver: New(Config{Kind: kind, Allow: []string{dir}, Layout: l, Helpers: newHelpers(t)}), Kind: kind, Config: config, Grows: kind == local.Kind,
				}
				if hands {
					s.HostPath = dir
				}
				return s
			})
		})
	}
}

// Whether a pod may have what a path of the node leads to is asked in a helper: the path may lead through a
// file system whose server hangs.
func TestHostPathsAreLookedAtInHelpers(t *testing.T) {
	dir, helpers := t.TempDir(), newHelpers(t)
	for _, link := range []string{"out", "in"} {
		to := map[string]string{"out": "/etc", "in": dir}[link]
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	k := Kernel{Kernel: mount.New(dir), Helpers: helpers, Allow: []string{dir}}
	for path, denied := range map[string]bool{dir: false, dir + "/none": false, dir + "/in": false, dir + "/out": true, "/etc": true} {
		if err := k.HostPath(t.Context(), path); errors.Is(err, hostpath.ErrDenied) != denied || !denied && err != nil {
			t.Errorf("%s: %v, want a denial: %v", path, err, denied)
		}
	}
	if s := helpers.Stats(); s.Helpers != 1 {
		t.Errorf("helpers: got %d, want 1", s.Helpers)
	}
}

// A helper refuses a request that it does not understand, and lives on.
func TestHelperRefusesWhatItDoesNotKnow(t *testing.T) {
	p := newHelpers(t)
	for i, request := range []string{`{"kind":"no such"}`, `{"kind":"kubernetes.io/host-path","verb":"no such"}`, `[]`} {
		if _, err := p.Do(t.Context(), strconv.Itoa(i), callVerb, []byte(request)); err == nil {
			t.Errorf("%s: no error", request)
		}
	}
	if s := p.Stats(); s.Helpers != 1 {
		t.Errorf("helpers: got %d, want 1", s.Helpers)
	}
}

// Helpers read and unpack images: if a layer takes too much memory, the kernel does not
// kill the daemon's own process.
//
// Attacks: C49.
func TestAttackImagesAreUnpackedInHelpers(t *testing.T) {
	const name = "registry.example.com/models/small:v1"
	layout := state.Layout{Root: filepath.Join(t.TempDir(), "root")}
	if err := os.Mkdir(layout.Root, 0o700); err != nil {
		t.Fatal(err)
	}
	images := imagetest.New(t, t.TempDir())
	images.Add(name, images.Image(imagetest.Layer(t, imagetest.File("readme", "x"))))
	helpers := newHelpers(t)
	d := image.New(image.Config{Layout: layout, Kernel: mount.New(layout.Root), Dirs: []string{images.Dir}, Away: helpers})
	target := layout.BuiltinTarget(image.Kind, "a", "data")
	v := state.Volume{
		Spec:   &state.Spec{Driver: image.Kind, Name: "data", Builtin: true, Config: []byte(`{"reference": "` + name + `"}`)},
		Mounts: map[state.PodUID]state.Mount{"a": {MountSpec: state.MountSpec{Pod: state.Pod{UID: "a"}, Target: target, ReadOnly: true}}},
	}
	if err := d.Publish(t.Context(), v, "a"); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(target, "readme")); err != nil || string(b) != "x" {
		t.Errorf("the image has %q, %v", b, err)
	}
	if s := helpers.Stats(); s.Helpers != 1 {
		t.Errorf("helpers: got %d, want 1", s.Helpers)
	}
	if err := d.Unpublish(t.Context(), v, "a"); err != nil {
		t.Error(err)
	}
	v.Spec.Config = []byte(`{"reference": "registry.example.com/models/none:v1"}`)
	if err := d.Publish(t.Context(), v, "a"); !errors.Is(err, oci.ErrNotFound) {
		t.Errorf("an image that is not there: got %v, want what the helper found", err)
	}
	for call := range image.Helper().Handlers {
		if Service().Memory[call] == 0 {
			t.Errorf("the memory of %s has no limit", call)
		}
	}
}
