package local_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/diskfs"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/hostpath"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/local"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
)

// C27: no fsType of a volume makes the kernel mount anything but what is on its device,
// whether the device is unused or mounted elsewhere.
// Attacks: C27.
func TestAttackFileSystemThatIgnoresItsDeviceIsNotMounted(t *testing.T) {
	n := newNode(t, "/dev")
	device := drivertest.Device(t, "ext4")
	held := drivertest.Device(t, "ext4")
	at := t.TempDir()
	if err := unix.Mount(held, at, "ext4", unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(at, unix.MNT_DETACH) })
	for _, path := range []string{device, held} {
		for _, fsType := range []string{"proc", "sysfs", "cgroup2", "devtmpfs", "tmpfs", "overlay"} {
			v := n.volume(path, podA)
			v.Spec.Config = config(t, path, fsType)
			if fsType == "overlay" {
				v.Spec.MountFlags = []string{"lowerdir=/etc:/usr"}
			}
			n.wantRefused(fsType, n.driver.Publish(t.Context(), v, podA), diskfs.ErrType)
			n.unpublish(v, podA)
		}
		v := n.volume(path, podA)
		v.Spec.Config = config(t, path, "xfs")
		if err := n.driver.Publish(t.Context(), v, podA); err == nil || !strings.Contains(err.Error(), "the disk has ext") {
			t.Errorf("ext4 as xfs: got %v", err)
		}
		for _, option := range []string{"journal_path=" + device, "source=/dev/null", "lowerdir=/"} {
			v := n.volume(path, podA)
			v.Spec.MountFlags = []string{option}
			n.wantRefused(option, n.driver.Publish(t.Context(), v, podA), diskfs.ErrOption)
			n.unpublish(v, podA)
		}
	}
	if len(n.calls) != 0 && strings.HasPrefix(n.calls[0], "mkfs") {
		t.Errorf("run %q", n.calls)
	}
}

// A disk's file system comes from outside the node: device nodes and set-user-id
// programs on it have no effect, unless the volume's mountOptions say so.
//
// Items: M08.
func TestDevicesAndSetUserIDOfADiskHaveNoEffect(t *testing.T) {
	n := newNode(t, "/dev")
	device := drivertest.Device(t, "ext4")
	for _, c := range []struct {
		options []string
		want    int64
	}{{nil, unix.ST_NOSUID | unix.ST_NODEV}, {[]string{"suid,dev"}, 0}, {[]string{"dev"}, unix.ST_NOSUID}} {
		v := n.volume(device, podA)
		v.Spec.MountFlags = c.options
		n.publish(v, podA)
		var st unix.Statfs_t
		if err := unix.Statfs(n.target(podA), &st); err != nil || int64(st.Flags)&(unix.ST_NOSUID|unix.ST_NODEV) != c.want {
			t.Errorf("%q: flags %#x, %v, want %#x", c.options, st.Flags, err, c.want)
		}
		n.unpublish(v, podA)
	}
}

// The owner of a disk cannot have the node end at an error of its file system. A volume with that option that an earlier
// version mounted is still there for its pod, and is unmounted.
//
// Attacks: C27.
func TestAttackDiskThatWouldEndTheNode(t *testing.T) {
	n := newNode(t, "/dev")
	device := drivertest.Device(t, "ext4")
	v := n.volume(device, podA)
	v.Spec.MountFlags = []string{"errors=panic"}
	err := n.driver.Publish(t.Context(), v, podA)
	n.wantRefused("errors=panic", err, diskfs.ErrOption)
	if err == nil || !strings.Contains(err.Error(), "want errors=remount-ro or errors=continue") {
		t.Errorf("got %v", err)
	}
	if err := unix.Mount(device, n.target(podA), "ext4", unix.MS_NOSUID|unix.MS_NODEV, "errors=continue"); err != nil {
		t.Fatal(err)
	}
	n.publish(v, podA) // as by a daemon that does not know whether it was made
	n.unpublish(v, podA)
}

// C27: the driver refuses an option that selects another kind of mount in mount(8).
// Attacks: C27.
func TestAttackOptionThatChangesTheKindOfMountIsRefused(t *testing.T) {
	n := newNode(t)
	for _, option := range []string{"remount", "rbind", "bind", "move", "rw,remount", "shared", "rshared", "loop"} {
		v := n.volume(n.disks+"/a", podA)
		v.Spec.MountFlags = []string{option}
		n.wantRefused(option, n.driver.Publish(t.Context(), v, podA), diskfs.ErrOption)
		n.unpublish(v, podA)
	}
}

// C28: a device node that something made in an allowed directory, as a container with
// CAP_MKNOD can in its volume, is no local volume: neither its file system nor the
// device itself, nor through a link. A node that the operator lists is one.
// Attacks: C28.
func TestAttackDeviceNodeInAnAllowedDirectoryIsNoVolume(t *testing.T) {
	n := newNode(t)
	device := drivertest.Device(t, "ext4")
	var st unix.Stat_t
	node, link := n.disks+"/a/node", n.disks+"/a/link"
	if err := errors.Join(unix.Stat(device, &st), unix.Mknod(node, unix.S_IFBLK|0o600, int(st.Rdev)), os.Symlink("node", link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{node, link} {
		for _, mode := range []state.Mode{state.Filesystem, state.Block} {
			v := n.volume(path, podA)
			v.Spec.Mode = mode
			n.wantRefused(path, n.driver.Publish(t.Context(), v, podA), hostpath.ErrDenied)
			n.unpublish(v, podA)
			_, err := n.driver.Expand(t.Context(), v, podA, 1<<30)
			n.wantRefused("grow "+path, err, hostpath.ErrDenied)
		}
	}
	if len(n.calls) != 0 {
		t.Errorf("run %q", n.calls)
	}
	n = newNode(t, node)
	v := n.volume(node, podA)
	n.publish(v, podA)
	n.unpublish(v, podA)
}

// C29: an allowed directory below another one may be a container's link.
// Attacks: C29.
func TestAttackNestedAllowedDirectoryIsALink(t *testing.T) {
	n := newNode(t)
	outside := t.TempDir()
	if err := errors.Join(os.Symlink(outside, n.disks+"/nested"), os.Mkdir(outside+"/x", 0o700)); err != nil {
		t.Fatal(err)
	}
	n.driver = local.New(local.Config{Layout: n.layout, Kernel: n.kernel, Allow: []string{n.disks, n.disks + "/nested"}, Run: n.run})
	for _, path := range []string{n.disks + "/nested", n.disks + "/nested/x", outside} {
		n.wantRefused(path, n.driver.Publish(t.Context(), n.volume(path, podA), podA), hostpath.ErrDenied)
	}
}

// The owner of a local directory that shares its file system links a file of another into it. The pod's fsGroup gets
// what is the directory's own, and not that file, whose other name stays what it was. All names in a file system of its
// own are the volume's: there, files with several names are given, as a git repository or a package store needs.
//
// Attacks: C20.
func TestAttackNoHardLinkGivesAFileAway(t *testing.T) {
	n := newNode(t, "/dev")
	gid := int64(4711)
	want := func(path string, mode, group uint32) {
		t.Helper()
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil || st.Gid != group || st.Mode&0o7777 != mode {
			t.Errorf("%s: mode %04o, group %d, %v; want %04o, %d", path, st.Mode&0o7777, st.Gid, err, mode, group)
		}
	}
	give := func(path string) {
		t.Helper()
		v := n.volume(path, podA)
		m := v.Mounts[podA]
		m.FSGroup = &gid
		v.Mounts[podA] = m
		n.publish(v, podA)
		n.unpublish(v, podA)
	}
	canary, dir := n.disks+"/shadow", n.disks+"/a"
	if err := errors.Join(
		os.WriteFile(canary, nil, 0o600), os.WriteFile(dir+"/own", nil, 0o600), os.Link(canary, dir+"/link"),
	); err != nil {
		t.Fatal(err)
	}
	give(dir)
	want(canary, 0o600, 0)
	want(dir+"/own", 0o660, uint32(gid))

	device, whole := drivertest.Device(t, "ext4"), n.disks+"/whole"
	if err := errors.Join(os.Mkdir(whole, 0o755), unix.Mount(device, whole, "ext4", 0, "")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(whole, unix.MNT_DETACH) })
	if err := errors.Join(
		os.Mkdir(whole+"/sub", 0o755), os.WriteFile(whole+"/object", nil, 0o600), os.Link(whole+"/object", whole+"/sub/link"),
	); err != nil {
		t.Fatal(err)
	}
	give(whole + "/sub")
	want(whole+"/object", 0o600, 0)
	give(whole)
	want(whole+"/object", 0o660, uint32(gid))
	if err := errors.Join(os.WriteFile(whole+"/other", nil, 0o600), os.Link(whole+"/other", whole+"/sub/other"), os.Chown(whole, 0, 0)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(whole, 0); err != nil {
		t.Fatal(err)
	}
	give(device)
	if err := unix.Mount(device, whole, "ext4", 0, ""); err != nil {
		t.Fatal(err)
	}
	want(whole+"/other", 0o660, uint32(gid))
}
