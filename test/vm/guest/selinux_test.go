//go:build vm

package guest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
)

const (
	label      = `context="system_u:object_r:container_file_t:s0:c1,c2"`
	otherLabel = `context="system_u:object_r:container_file_t:s0:c3,c4"`
)

// enforce loads this machine's policy and sets SELinux to enforcing.
func enforce(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/sys/fs/selinux/enforce"); err == nil {
		return // an earlier test did it
	}
	sh(t, "mount", "-t", "selinuxfs", "selinuxfs", "/sys/fs/selinux")
	sh(t, "sh", "-c", "cat /etc/selinux.policy > /sys/fs/selinux/load")
	write(t, "/sys/fs/selinux/enforce", "1")
	if got := read(t, "/sys/fs/selinux/enforce"); got != "1" {
		t.Fatalf("enforcing: %q", got)
	}
}

// confined reads a file as a container with the given categories does.
func confined(t *testing.T, categories, file string) error {
	t.Helper()
	script := `printf "system_u:system_r:container_t:$0" > /proc/self/attr/current && read line < "$1"`
	return exec.CommandContext(t.Context(), "sh", "-c", script, categories, file).Run()
}

// A mount labels a whole file system: containers with its categories read it,
// others do not. Until it is unmounted, it cannot be mounted with another label or
// without one.
func TestContextMountsAndTheirConflicts(t *testing.T) {
	enforce(t)
	sh(t, "modprobe", "loop")
	k := mount.New("/")
	for _, fsType := range []string{"ext4", "xfs"} {
		image := "/" + fsType + ".img"
		sh(t, "truncate", "-s", "320M", image)
		sh(t, "mkfs."+fsType, "-q", image)
		device := strings.TrimSpace(sh(t, "/sbin/losetup", "--find", "--show", image))
		first, second := mkdir(t, filepath.Join("/mnt", fsType)), mkdir(t, filepath.Join("/mnt", fsType+"-again"))
		if err := k.Filesystem(device, first, fsType, []string{label}); err != nil {
			t.Fatal(err)
		}
		if line := mountOf(t, first); !strings.Contains(line, label) || strings.Contains(line, "seclabel") {
			t.Errorf("%s: mounted as %q", fsType, line)
		}
		if m, err := k.MapsIDs(t.Context(), first); err != nil || m != (mount.Maps{IDs: true, FSType: fsType}) {
			t.Errorf("%s: ids can be mapped: %+v, %v", fsType, m, err)
		}
		write(t, first+"/file", "line\n")
		for categories, may := range map[string]bool{"s0:c1,c2": true, "s0:c7,c8": false} {
			if err := confined(t, categories, first+"/file"); (err == nil) != may {
				t.Errorf("%s: read with %s: %v, want that it may: %v", fsType, categories, err, may)
			}
		}
		for _, flags := range [][]string{{otherLabel}, nil} {
			if err := k.Filesystem(device, second, fsType, flags); !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EBUSY) {
				t.Errorf("%s: mounted once more with %q: %v", fsType, flags, err)
			}
		}
		if err := k.Filesystem(device, second, fsType, []string{label}); err != nil {
			t.Errorf("%s: with the same label: %v", fsType, err)
		}
		for _, dir := range []string{second, first} {
			if err := k.Unmount(t.Context(), dir); err != nil {
				t.Error(err)
			}
		}
		if err := k.Filesystem(device, first, fsType, nil); err != nil {
			t.Fatal(err)
		}
		if line := mountOf(t, first); !strings.Contains(line, "seclabel") {
			t.Errorf("%s: without a label mounted as %q", fsType, line)
		}
		if err := k.Unmount(t.Context(), first); err != nil {
			t.Error(err)
		}
		t.Logf("%s: one label at a time, read by its categories only", fsType)
	}
}

// An iSCSI volume is mounted with its pod's label: a container with its categories
// reads it, another one does not.
func TestISCSIVolumeHasThePodsLabel(t *testing.T) {
	const iqn = "iqn.2024-01.test.csi-volmgr:label"
	enforce(t)
	serveISCSI(t, iqn, false, backstore(t, "label", 64))
	n := newISCSI(t)
	v := n.volume("label", corev1.ISCSIVolumeSource{TargetPortal: "127.0.0.1", IQN: iqn})
	v.Spec.SELinuxLabel = "system_u:object_r:container_file_t:s0:c1,c2"
	dir := n.up(v)
	if line := mountOf(t, dir); !strings.Contains(line, label) {
		t.Errorf("mounted as %q", line)
	}
	write(t, dir+"/file", "line\n")
	for categories, may := range map[string]bool{"s0:c1,c2": true, "s0:c7,c8": false} {
		if err := confined(t, categories, dir+"/file"); (err == nil) != may {
			t.Errorf("read with %s: %v, want that it may: %v", categories, err, may)
		}
	}
	n.down(v)
	wantNoISCSI(t, iqn)
	t.Log("an iSCSI volume has its pod's label")
}
