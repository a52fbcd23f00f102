package cri_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/host/cri"
	"github.com/csi-volmgr/csi-volmgr/test/fakecri"
)

// An image is present after it was pulled; if the image service is away or has no such
// image, the error names the image.
func TestImages(t *testing.T) {
	dir, err := os.MkdirTemp("", "cri-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	fake := fakecri.New(t, filepath.Join(dir, "s"))
	images, err := cri.NewImages(fake.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	defer images.Close()
	const name = "registry.example.com/a:v1"
	fake.Registry(name, "sha256:1")
	if id, err := images.Present(t.Context(), name); err != nil || id != "" {
		t.Errorf("before: %q, %v", id, err)
	}
	if id, err := images.Pull(t.Context(), name); err != nil || id != "sha256:1" {
		t.Errorf("pull: %q, %v", id, err)
	}
	if id, err := images.Present(t.Context(), name); err != nil || id != "sha256:1" {
		t.Errorf("after: %q, %v", id, err)
	}
	if _, err := images.Pull(t.Context(), "registry.example.com/none:v1"); err == nil || !strings.Contains(err.Error(), fake.Endpoint()) {
		t.Errorf("none: %v", err)
	}
	fake.Stop()
	if _, err := images.Present(t.Context(), name); err == nil || !strings.Contains(err.Error(), fake.Endpoint()) {
		t.Errorf("away: %v", err)
	}
}
