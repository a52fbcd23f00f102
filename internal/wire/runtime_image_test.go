package wire

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/test/fakecri"
)

// The container runtime fetches an image that only it has. The container gets the wanted part of it as an image,
// read-only.
//
// Items: M13.
func TestRuntimeMountsItsImages(t *testing.T) {
	c := dirs(t)
	if err := os.MkdirAll(c.RuntimeDir, 0o700); err != nil {
		t.Fatal(err)
	}
	fake := fakecri.New(t, filepath.Join(c.RuntimeDir, "cri.sock"))
	const reference = "registry.example.com/models/small:v1"
	fake.Registry(reference, "sha256:1")
	c.ImageService = fake.Endpoint()
	n, _ := start(t, c)
	apply(t, n, imageManifest)
	uid := uidOf(t, n, "web")
	if err := n.Manager().WaitForAttachAndMount(within(t), uid); err != nil {
		t.Fatal(err)
	}
	mounts := must(t, n, "app")
	for path, part := range map[string]string{"/model": "", "/weights": "weights"} {
		if m := mounts[path]; m.Image != reference || m.SubPath != part || m.HostPath != "" || !m.ReadOnly {
			t.Errorf("%s: got %+v, want %q of the image", path, m, part)
		}
	}
	if pulls := fake.Pulls(); !slices.Equal(pulls, []string{reference}) {
		t.Errorf("pulled %q", pulls)
	}
	if err := n.DeletePod(within(t), "default", "web"); err != nil {
		t.Fatal(err)
	}
	if err := n.Manager().WaitForUnmount(within(t), uid); err != nil {
		t.Fatal(err)
	}
}
