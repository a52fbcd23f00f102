package mount

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// A pod whose user is root gives each directory of a deep tree a project of its own: xfs
// and ext4 move nothing into a directory of another project.
//
// Attacks: C14.
func TestAttackRemoveTreeOfManyProjects(t *testing.T) {
	dir := scratch(t)
	image := dir + "/image"
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, 320<<20)) // 300 MiB are the minimum
	if out, err := exec.Command("mkfs.xfs", "-q", image).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	at := mkdir(t, dir, "xfs")
	if out, err := exec.Command("mount", "-o", "loop", image, at).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	defer unix.Unmount(at, 0) // and with it the loop device
	top, err := unix.Open(mkdir(t, at, "tree"), unix.O_RDONLY, 0)
	must(t, err)
	fd := top
	for i := range 5 * maxDepth {
		setProject(t, fd, uint32(i))
		must(t, unix.Mkdirat(fd, "d", 0o755))
		next, err := unix.Openat(fd, "d", unix.O_RDONLY, 0)
		must(t, err)
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
	must(t, New().RemoveTree(t.Context(), at, "tree"))
	if exists(at + "/tree") {
		t.Error("it is still there")
	}
}

// setProject puts a directory, and what is made in it, into a project.
func setProject(t *testing.T, fd int, id uint32) {
	t.Helper()
	attr := fsxattr{xflags: projectInherit, project: id}
	if errno := ioctl(fd, setXAttr, &attr); errno != 0 {
		t.Fatal(errno)
	}
}
