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

// No option lets an error in a disk's file system, which the disk's owner can write, end the node. An ext2, ext3 or ext4
// has an option against the word of its superblock, unless the volume has one.
//
// Attacks: C27.
func TestAttackNoDiskEndsTheNode(t *testing.T) {
	for _, c := range []struct{ fsType, option string }{
		{"ext2", "errors=panic"},
		{"ext3", "errors=panic"},
		{"ext4", "errors=panic"},
		{"btrfs", "fatal_errors=panic"},
		{"vfat", "errors=panic"},
		{"exfat", "errors=panic"},
		{"squashfs", "errors=panic"},
	} {
		err := diskfs.Check(c.fsType, []string{"ro", c.option})
		if c.fsType != "btrfs" {
			err = diskfs.Check(c.fsType, []string{"errors=continue", c.option})
		}
		if !errors.Is(err, diskfs.ErrOption) {
			t.Errorf("%s, %s: got %v, want ErrOption", c.fsType, c.option, err)
		}
	}
	for _, c := range []struct {
		fsType        string
		options, want []string
	}{
		{"ext2", nil, []string{"errors=remount-ro"}},
		{"ext3", []string{"discard"}, []string{"discard", "errors=remount-ro"}},
		{"ext4", []string{"errors=continue"}, []string{"errors=continue"}},
		{"xfs", []string{"nouuid"}, []string{"nouuid"}},
		{"vfat", nil, nil},
	} {
		if got := diskfs.Complete(c.fsType, c.options); !slices.Equal(got, c.want) {
			t.Errorf("%s %q: %q, want %q", c.fsType, c.options, got, c.want)
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
