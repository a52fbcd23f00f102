package harness

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// MountHelper puts the program where mount(8) looks for the helper of type csi. Only the
// test's mount namespace has it, and only until the test ends.
func MountHelper(t *testing.T, program string) {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	sbin, err := filepath.EvalSymlinks("/sbin")
	if err != nil {
		t.Fatal(err)
	}
	upper, work := filepath.Join(dir, "upper"), filepath.Join(dir, "work")
	for _, d := range []string{upper, work} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(program, filepath.Join(upper, "mount.csi")); err != nil {
		t.Fatal(err)
	}
	options := "lowerdir=" + sbin + ",upperdir=" + upper + ",workdir=" + work
	if err := unix.Mount("overlay", sbin, "overlay", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(sbin, unix.MNT_DETACH) })
}
