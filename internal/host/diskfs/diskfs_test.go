package diskfs_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/host/diskfs"
)

// A file system type that ignores its device is never accepted for a disk, and no mount
// option leads to another device or path.
//
// Attacks: C27.
func TestAttackOnlyADisksFileSystemsAndOptionsPass(t *testing.T) {
	for _, fsType := range []string{
		"", "proc", "sysfs", "cgroup", "cgroup2", "devtmpfs", "devpts", "tmpfs", "ramfs", "hugetlbfs", "overlay", "bpf", "debugfs", "tracefs",
		"securityfs", "configfs", "efivarfs", "nfs", "nfs4", "cifs", "9p", "virtiofs", "fuse", "fuseblk", "ceph", "mqueue", "pstore",
		"binfmt_misc", "autofs", "EXT4", "ext4 ", "ext4,proc", "xfsx", "ext", "bind", "none",
	} {
		if err := diskfs.Check(fsType, nil); !errors.Is(err, diskfs.ErrType) {
			t.Errorf("%q: got %v, want ErrType", fsType, err)
		}
	}
	for _, c := range []struct{ fsType, option string }{
		{"ext4", "lowerdir=/"},
		{"ext4", "journal_path=/dev/sda"},
		{"ext4", "journal_dev=8"},
		{"ext4", "source=/dev/sda"},
		{"ext4", "usrjquota=x"},
		{"xfs", "logdev=/dev/sda"},
		{"xfs", "rtdev=/dev/sda"},
		{"btrfs", "device=/dev/sda"},
		{"erofs", "device=/dev/sda"},
		{"ext4", "fd=3"},
		{"ext4", "data=a\nb"},
		{"ext4", "data=a b"},
		{"ext4", `data="a,source=/dev/sda"`},
		{"ext4", "bind"},
		{"ext4", "remount"},
		{"ext4", "loop"},
		{"ext4", ""},
	} {
		if err := diskfs.Check(c.fsType, []string{"discard", c.option}); !errors.Is(err, diskfs.ErrOption) {
			t.Errorf("%s, %q: got %v, want ErrOption", c.fsType, c.option, err)
		}
	}
}

func TestOptionsThatVolumesHavePass(t *testing.T) {
	for fsType, options := range map[string][]string{
		"ext4":    {"data=ordered", "discard", "errors=remount-ro", `context="system_u:object_r:container_file_t:s0:c1,c2"`, "commit=60", "prjquota"},
		"xfs":     {"nouuid", "inode64", "logbsize=256k", "pquota"},
		"btrfs":   {"subvol=/@data", "compress=zstd:3", "space_cache=v2"},
		"vfat":    {"uid=1000", "umask=0077", "utf8"},
		"iso9660": {"norock"},
	} {
		if err := diskfs.Check(fsType, options); err != nil {
			t.Error(err)
		}
	}
	if types := diskfs.Types(); !slices.IsSorted(types) || !slices.Contains(types, "ext4") {
		t.Errorf("got %q", types)
	}
}
