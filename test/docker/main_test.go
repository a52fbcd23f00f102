//go:build docker

package docker

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// program is csi-volmgr, quadlet is podman's unit generator, and image is a tar file with the root
// file system of the containers.
var program, quadlet, image string

func TestMain(m *testing.M) { os.Exit(harness.Main(m, prepare)) }

// prepare builds the program and the image. dockerd looks for plugins only in /run/docker, which is
// empty here.
func prepare(dir string) (err error) {
	if program, err = harness.Build(filepath.Join(dir, "csi-volmgr"), "cmd/csi-volmgr"); err != nil {
		return err
	}
	quadlet = filepath.Join(dir, "quadlet")
	cmd := exec.Command("go", "-C", "quadlet", "build", "-o", quadlet, "github.com/containers/podman/v5/cmd/quadlet")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build quadlet: %w\n%s", err, out)
	}
	if err := os.MkdirAll("/run/docker", 0o711); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", "/run/docker", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount /run/docker: %w", err)
	}
	if err := os.Mkdir("/run/docker/plugins", 0o700); err != nil {
		return err
	}
	image = filepath.Join(dir, "image.tar")
	return makeImage(filepath.Join(dir, "image"), image)
}

// makeImage makes the root file system of a container: busybox, and a directory /app with a file,
// which an engine copies to an empty volume.
func makeImage(dir, tar string) error {
	for _, sub := range []string{"bin", "app", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return err
	}
	err = errors.Join(os.WriteFile(filepath.Join(dir, "bin/busybox"), busybox, 0o755),
		os.WriteFile(filepath.Join(dir, "app/shipped"), []byte("by the image\n"), 0o644),
		os.Chown(filepath.Join(dir, "app"), 70, 70), os.Chmod(filepath.Join(dir, "app"), 0o750))
	for _, applet := range []string{"cat", "echo", "id", "ls", "sh", "sleep", "stat", "sync", "tar", "test", "touch"} {
		err = errors.Join(err, os.Symlink("busybox", filepath.Join(dir, "bin", applet)))
	}
	if err != nil {
		return err
	}
	if out, err := exec.Command("tar", "-C", dir, "-cf", tar, ".").CombinedOutput(); err != nil {
		return fmt.Errorf("pack the image: %w\n%s", err, out)
	}
	return nil
}
