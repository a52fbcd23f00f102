package image_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image/oci"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image/unpack"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest/imagetest"
)

func TestMain(m *testing.M) { drivertest.Main(m) }

const (
	name = "registry.example.com/models/small:v1"
	pod  = state.PodUID("7f3c2a10-0000-4000-8000-000000000001")
	two  = state.PodUID("7f3c2a10-0000-4000-8000-000000000002")
)

// node is a node with an image layout.
type node struct {
	*testing.T
	layout state.Layout
	images *imagetest.Layout
	driver *image.Driver
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{T: t, layout: state.Layout{Root: t.TempDir()}, images: imagetest.New(t, t.TempDir())}
	t.Cleanup(func() {
		targets, _ := filepath.Glob(filepath.Join(n.layout.Pods(), "*", "volumes", "*", "*"))
		for _, path := range targets {
			_ = unix.Unmount(path, unix.MNT_DETACH) // left by a failed test
		}
	})
	n.restart()
	return n
}

func (n *node) restart() {
	n.driver = image.New(image.Config{Layout: n.layout, Kernel: mount.New(n.layout.Root), Dirs: []string{n.images.Dir}})
}

// small adds the usual image with the usual name.
func (n *node) small() oci.Descriptor {
	n.Helper()
	return n.images.Add(name, n.images.Image(
		imagetest.Layer(n, imagetest.Dir("etc"), imagetest.File("etc/motd", "lower"), imagetest.File("etc/gone", "x"), imagetest.Dir("old"), imagetest.File("old/a", "x")),
		imagetest.Layer(n, imagetest.File("etc/motd", "upper"), imagetest.File("etc/.wh.gone", ""), imagetest.File("old/.wh..wh..opq", ""), imagetest.File("old/b", "new")),
		imagetest.Layer(n, imagetest.Symlink("motd", "etc/motd"), imagetest.Link("same", "etc/motd")),
	))
}

func (n *node) volume(uid state.PodUID, reference string) state.Volume {
	id := state.PodVolumeID(image.Kind, uid, "data")
	return state.Volume{
		ID:   id,
		Spec: &state.Spec{Driver: image.Kind, Name: "data", Builtin: true, Mode: state.Filesystem, Config: fmt.Appendf(nil, `{"reference": %q}`, reference)},
		Mounts: map[state.PodUID]state.Mount{uid: {MountSpec: state.MountSpec{
			Pod: state.Pod{UID: uid}, Target: n.layout.BuiltinTarget(image.Kind, uid, "data"), ReadOnly: true,
		}}},
	}
}

func (n *node) publish(uid state.PodUID, reference string) (target string) {
	n.Helper()
	v := n.volume(uid, reference)
	if err := n.driver.Publish(n.Context(), v, uid); err != nil {
		n.Fatal(err)
	}
	return v.Mounts[uid].Target
}

func (n *node) unpublish(uid state.PodUID) {
	n.Helper()
	if err := n.driver.Unpublish(n.Context(), n.volume(uid, name), uid); err != nil {
		n.Fatal(err)
	}
}

// trees counts the images that the node has unpacked.
func (n *node) trees() int {
	n.Helper()
	left, err := filepath.Glob(filepath.Join(n.layout.Plugins(), "kubernetes.io/image", "*", "*"))
	if err != nil {
		n.Fatal(err)
	}
	return len(left)
}

func read(t *testing.T, elems ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(elems...))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Items: M15.
func TestKind(t *testing.T) {
	images := imagetest.New(t, t.TempDir())
	images.Add(name, images.Image(imagetest.Layer(t, imagetest.Dir("dir"), imagetest.File("file", "x"))))
	drivertest.Run(t, func(_ *testing.T, l state.Layout) drivertest.Subject {
		return drivertest.Subject{
			Driver: image.New(image.Config{Layout: l, Kernel: mount.New(l.Root), Dirs: []string{images.Dir}}),
			Kind:   image.Kind, Config: []byte(`{"reference": "` + name + `"}`), Fixed: true,
		}
	})
}

// An image's layers make one file system, in which upper layers hide files of lower
// ones. The volume is read-only, noexec, nodev and nosuid.
func TestLayersMakeOneFileSystem(t *testing.T) {
	n := newNode(t)
	n.small()
	dir := n.publish(pod, name)
	for file, want := range map[string]string{"etc/motd": "upper", "motd": "upper", "same": "upper", "old/b": "new"} {
		if got := read(t, dir, file); got != want {
			t.Errorf("%s: got %q, want %q", file, got, want)
		}
	}
	for _, file := range []string{"etc/gone", "old/a", "etc/.wh.gone", "old/.wh..wh..opq"} {
		if _, err := os.Lstat(filepath.Join(dir, file)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: got %v, want that it is hidden", file, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("write: got %v", err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	for flag, what := range map[int64]string{unix.ST_RDONLY: "ro", unix.ST_NOEXEC: "noexec", unix.ST_NOSUID: "nosuid", unix.ST_NODEV: "nodev"} {
		if int64(st.Flags)&flag == 0 {
			t.Errorf("the mount is not %s", what)
		}
	}
	n.unpublish(pod)
}

// Volumes of one image share one tree, which is removed with the last of them, also
// after a restart.
func TestTreeGoesWithTheLastVolume(t *testing.T) {
	n := newNode(t)
	d := n.small()
	n.publish(pod, name)
	n.publish(two, "registry.example.com/models/small@"+string(d.Digest))
	if got := n.trees(); got != 1 {
		t.Errorf("%d trees, want 1", got)
	}
	n.restart()
	n.unpublish(pod)
	if got := read(t, n.layout.BuiltinTarget(image.Kind, two, "data"), "motd"); got != "upper" || n.trees() != 1 {
		t.Errorf("the other volume: %q, %d trees", got, n.trees())
	}
	n.unpublish(two)
	n.unpublish(two)
	if got := n.trees(); got != 0 {
		t.Errorf("%d trees left", got)
	}
}

// When a tag moves to another image, existing volumes do not change; the next volume
// has the new image.
func TestTagThatMoves(t *testing.T) {
	n := newNode(t)
	n.small()
	dir := n.publish(pod, name)
	moved := n.images.Image(imagetest.Layer(t, imagetest.File("motd", "moved")))
	moved.Annotations = map[string]string{imagetest.RefName: name}
	n.images.Index(moved)
	n.publish(pod, name)
	other := n.publish(two, name)
	if a, b := read(t, dir, "motd"), read(t, other, "motd"); a != "upper" || b != "moved" || n.trees() != 2 {
		t.Errorf("got %q and %q, %d trees", a, b, n.trees())
	}
	n.unpublish(pod)
	n.unpublish(two)
}

// If any blob differs from its digest, the pod sees nothing of the image and nothing of
// it is left. Once the layout is repaired, the volume is published.
func TestBlobThatIsNotWhatItsDigestSays(t *testing.T) {
	n := newNode(t)
	layer := imagetest.Layer(t, imagetest.File("motd", strings.Repeat("upper", 1000)))
	for _, suffix := range []string{"", "+gzip", "+zstd"} {
		stored := n.images.Blob(imagetest.TAR+suffix, imagetest.Compress(t, layer, suffix))
		good := n.images.Manifest([]oci.Digest{imagetest.DigestOf(layer)}, stored)
		good.Annotations = map[string]string{imagetest.RefName: name}
		n.images.Index(good)
		wrong := n.images.Manifest([]oci.Digest{imagetest.DigestOf([]byte("other"))}, stored)
		wrong.Annotations = good.Annotations
		for what, spoil := range map[string]func() (mend func()){
			"manifest": func() func() { n.images.Spoil(good.Digest); return func() { n.images.Spoil(good.Digest) } },
			"layer":    func() func() { n.images.Spoil(stored.Digest); return func() { n.images.Spoil(stored.Digest) } },
			"diff_id":  func() func() { n.images.Index(wrong); return func() { n.images.Index(good) } },
		} {
			mend := spoil()
			err := n.driver.Publish(t.Context(), n.volume(pod, name), pod)
			if err == nil || what != "layer" && !errors.Is(err, oci.ErrDigest) {
				t.Errorf("%s of %q: got %v", what, suffix, err)
			}
			if got := read(t, n.layout.BuiltinTarget(image.Kind, pod, "data"), "motd"); !strings.Contains(got, "no such file") {
				t.Errorf("%s: shown %.20q", what, got)
			}
			n.unpublish(pod)
			if got := n.trees(); got != 0 {
				t.Errorf("%s: %d trees left", what, got)
			}
			mend()
			n.publish(pod, name)
			n.unpublish(pod)
		}
	}
}

// The driver does not take the remains of a killed call for an image, and removes them.
func TestUnfinishedTreeIsMadeAnew(t *testing.T) {
	n := newNode(t)
	d := n.small()
	for _, digits := range []string{d.Digest.Hex(), strings.Repeat("0", 64)} {
		at := filepath.Join(n.layout.Plugins(), "kubernetes.io/image/unfinished", digits, "content/etc")
		if err := errors.Join(os.MkdirAll(at, 0o755), os.WriteFile(filepath.Join(at, "motd"), []byte("half"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(t, n.publish(pod, name), "motd"); got != "upper" {
		t.Errorf("got %q", got)
	}
	n.unpublish(pod)
	if got := n.trees(); got != 0 {
		t.Errorf("%d left", got)
	}
}

// Pods that come and go at the same time never lose their image.
func TestPodsThatComeAndGoAtOnce(t *testing.T) {
	n := newNode(t)
	n.small()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			uid := state.PodUID(fmt.Sprintf("pod-%d", i))
			v := n.volume(uid, name)
			for range 5 {
				if err := n.driver.Publish(t.Context(), v, uid); err != nil {
					t.Error(err)
				}
				if got := read(t, v.Mounts[uid].Target, "etc/motd"); got != "upper" {
					t.Errorf("got %q", got)
				}
				if err := n.driver.Unpublish(t.Context(), v, uid); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := n.trees(); got != 0 {
		t.Errorf("%d trees left", got)
	}
}

// What cannot be an image is refused, so that the loop does not retry it.
func TestWhatIsNoImageIsRefused(t *testing.T) {
	n := newNode(t)
	n.images.Add("registry.example.com/hostile:v1", n.images.Image(imagetest.Layer(t, imagetest.File("../escape", "x"))))
	n.images.Add("registry.example.com/artifact:v1", n.images.Manifest([]oci.Digest{imagetest.DigestOf(nil)}, n.images.Blob("application/vnd.example.model", []byte("x"))))
	for config, want := range map[string]error{
		`{}`: oci.ErrReference, `{"reference": "UPPER/case"}`: oci.ErrReference, `{"reference": "../../x"}`: oci.ErrReference,
		`{"reference": "a", "pullPolicy": "Often"}`:         image.ErrPolicy,
		`{"reference": "registry.example.com/hostile:v1"}`:  unpack.ErrLayer,
		`{"reference": "registry.example.com/artifact:v1"}`: unpack.ErrLayer,
	} {
		v := n.volume(pod, name)
		v.Spec.Config = []byte(config)
		err := n.driver.Publish(t.Context(), v, pod)
		if e, ok := errors.AsType[*state.CallError](err); !ok || e.Outcome != state.Refused || !errors.Is(err, want) {
			t.Errorf("%s: got %v", config, err)
		}
	}
	if err := n.driver.Publish(t.Context(), n.volume(pod, "registry.example.com/none"), pod); !errors.Is(err, oci.ErrNotFound) {
		t.Errorf("no such image: got %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.driver.Publish(ended, n.volume(pod, name), pod); !errors.Is(err, context.Canceled) {
		t.Errorf("ended: got %v", err)
	}
	n.unpublish(pod)
}
