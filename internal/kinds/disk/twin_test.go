package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A device has a twin if another SCSI device has the identity of its disk, or of a disk that it is made of.
func TestTwinsOfADevice(t *testing.T) {
	const number = "1:3" // of /dev/null
	for name, tt := range map[string]struct {
		device string            // what the number leads to, below /sys
		wwids  map[string]string // of block devices
		slaves []string
		want   bool
	}{
		"no SCSI device":               {device: "block/loop0", wwids: map[string]string{"sda": "x"}},
		"a disk of its own":            {device: "block/sda", wwids: map[string]string{"sda": "x", "sdb": "y"}},
		"a second path":                {device: "block/sda", wwids: map[string]string{"sda": "x", "sdb": "x"}, want: true},
		"a partition of a second path": {device: "block/sda/sda1", wwids: map[string]string{"sda": "x", "sdb": "x"}, want: true},
		"a map of both paths":          {device: "block/dm-0", wwids: map[string]string{"sda": "x", "sdb": "x"}, slaves: []string{"sda", "sdb"}},
		"a map of one path":            {device: "block/dm-0", wwids: map[string]string{"sda": "x", "sdb": "x"}, slaves: []string{"sda"}, want: true},
	} {
		h := Host{Sys: t.TempDir()}
		write := func(path, text string) {
			if err := errors.Join(os.MkdirAll(filepath.Dir(h.sys(path)), 0o755), os.WriteFile(h.sys(path), []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		link := func(to, at string) {
			if err := errors.Join(os.MkdirAll(filepath.Dir(h.sys(at)), 0o755), os.Symlink(h.sys(to), h.sys(at))); err != nil {
				t.Fatal(err)
			}
		}
		write(tt.device+"/dev", number)
		if strings.HasSuffix(tt.device, "1") {
			write(tt.device+"/partition", "1")
		}
		for disk, wwid := range tt.wwids {
			write("block/"+disk+"/device/wwid", wwid)
		}
		for _, s := range tt.slaves {
			link("block/"+s, tt.device+"/slaves/"+s)
		}
		link(tt.device, "dev/block/"+number)
		if got, err := h.Twin("/dev/null"); err != nil || got != tt.want {
			t.Errorf("%s: %v, %v; want %v", name, got, err, tt.want)
		}
	}
}

// Only XFS, only an invalid argument and only without a twin is a mount tried again, without the check of UUIDs.
func TestACopyIsMountedWithoutTheCheckOfItsUUID(t *testing.T) {
	for name, tt := range map[string]struct {
		fsType string
		err    error
		twin   bool
		tries  int
	}{
		"a copy":        {"xfs", unix.EINVAL, false, 2},
		"a second path": {"xfs", unix.EINVAL, true, 1},
		"busy":          {"xfs", unix.EBUSY, false, 1},
		"ext4":          {"ext4", unix.EINVAL, false, 1},
		"well":          {"xfs", nil, false, 1},
	} {
		tries := 0
		err := Want{FSType: tt.fsType}.Mount(context.Background(), func(flags []string) error {
			tries++
			if slices.Contains(flags, "nouuid") {
				return nil
			}
			return tt.err
		}, func() (bool, error) { return tt.twin, nil })
		if tries != tt.tries || (err == nil) != (tt.err == nil || tt.tries == 2) {
			t.Errorf("%s: %d tries, %v", name, tries, err)
		}
	}
}
