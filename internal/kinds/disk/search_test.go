package disk_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/disk"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest/disktest"
)

// long is longer than any search in these tests.
const long = time.Minute

// search finds the names. If f is not nil, each look calls it with its number, from 1
// on.
func search(t time.Duration, f func(look int), names ...string) disk.Search {
	look := 0
	return disk.Search{Time: t, None: "none is there", Find: func() ([]string, bool, error) {
		if look++; f != nil {
			f(look)
		}
		return names, true, nil
	}}
}

// find stages the disk that s finds.
func find(n *disktest.Node, s disk.Search) (state.Volume, error) {
	v := n.Volume(kind, "data", `{}`, pod)
	if err := n.Stager().Begin(n.Context(), v); err != nil {
		return v, err
	}
	return v, n.Stager().Stage(n.Context(), v, s, ext4)
}

// withoutDriver replaces a device's node by that of a device that does not exist, so
// that the kernel returns ENXIO. whole undoes this.
func withoutDriver(n *disktest.Node, name string) (whole func()) {
	n.Helper()
	node := filepath.Join(n.Dev, name)
	if err := errors.Join(os.Rename(node, node+".whole"), unix.Mknod(node, unix.S_IFBLK|0o600, int(unix.Mkdev(240, 250)))); err != nil {
		n.Fatal(err)
	}
	if _, err := os.Open(node); !errors.Is(err, unix.ENXIO) && !errors.Is(err, unix.ENODEV) {
		n.Fatalf("open a device without a driver: %v", err)
	}
	return func() {
		if err := os.Rename(node+".whole", node); err != nil {
			n.Error(err)
		}
	}
}

// The driver waits for a device whose node cannot be opened or whose state is
// transient, and for a multipath map that has no size or is suspended.
func TestDeviceThatMovesIsLookedAtAgain(t *testing.T) {
	for name, moving := range map[string]func(n *disktest.Node) (whole func()){
		"cannot be opened": func(n *disktest.Node) func() { return withoutDriver(n, "sda") },
		"is being made":    func(n *disktest.Node) func() { return half(n, "created", "sda") },
		"is blocked":       func(n *disktest.Node) func() { return half(n, "blocked", "sda") },
		"map has no size":  func(n *disktest.Node) func() { return gathered(n, "0", "block", "dm-0", "size") },
		"map is suspended": func(n *disktest.Node) func() { return gathered(n, "1", "block", "dm-0", "dm", "suspended") },
	} {
		t.Run(name, func(t *testing.T) {
			n := disktest.New(t)
			n.Disk(wwid, "sda")
			whole := moving(n)
			v, err := find(n, search(long, func(look int) {
				if calls := n.Calls(); look < 4 && len(calls) != 0 {
					t.Errorf("look %d: run %q", look, calls)
				}
				if look == 3 {
					whole()
				}
			}, "sda"))
			if err != nil {
				t.Fatal(err)
			}
			unstage(n, v)
		})
	}
}

func half(n *disktest.Node, text, name string) (whole func()) {
	n.Set(text, "block", name, "device", "state")
	return func() { n.Set("running", "block", name, "device", "state") }
}

// gathered makes a map over sda. One of its sysfs files has the value of a map that is
// being made.
func gathered(n *disktest.Node, unfinished string, elems ...string) (whole func()) {
	device := n.Disk(wwid, "sda")
	n.Gathered(device, "dm-0", "mpatha", "sda")
	n.Set(unfinished, elems...)
	return func() {
		n.Set("32768", "block", "dm-0", "size")
		n.Set("0", "block", "dm-0", "dm", "suspended")
	}
}

// If a device never becomes usable, the error is not one of the disk's identity and
// gives the reason.
func TestDeviceThatIsNeverWhole(t *testing.T) {
	n := disktest.New(t)
	n.Disk(wwid, "sda")
	withoutDriver(n, "sda")
	if _, err := find(n, search(100*time.Millisecond, nil, "sda")); !errors.Is(err, unix.ENXIO) || !strings.Contains(err.Error(), "no device within 100ms") {
		t.Errorf("got %v", err)
	}
	if _, err := find(n, search(100*time.Millisecond, nil)); err == nil || !strings.Contains(err.Error(), "none is there") {
		t.Errorf("nothing found: got %v", err)
	}
}

// The driver does without an offline path at once if there is another one, and releases
// both. If the offline path is the only one, the error says so.
func TestOfflinePathIsDoneWithout(t *testing.T) {
	for _, offline := range []string{"offline", "transport-offline"} {
		n := disktest.New(t)
		n.Disk(wwid, "sda", "sdb")
		n.Set(offline, "block", "sda", "device", "state")
		withoutDriver(n, "sda")
		v, err := find(n, search(long, nil, "sda", "sdb"))
		if err != nil {
			t.Fatal(err)
		}
		if calls := n.Calls(); !slices.Equal(calls, []string{"mkfs.ext4 -F -q -m 0 -E nodiscard /dev/sdb"}) {
			t.Errorf("run %q", calls)
		}
		unstage(n, v)
		if err := n.Stager().Release(t.Context(), search(long, nil, "sda", "sdb"), wwid); err != nil {
			t.Error(err)
		}
		for _, path := range []string{"sda", "sdb"} {
			if got := n.Attribute("block", path, "device", "delete"); got != "1" {
				t.Errorf("%s: told %q", path, got)
			}
		}
		if _, err := find(n, search(100*time.Millisecond, nil, "sda")); err == nil || !strings.Contains(err.Error(), "offline") {
			t.Errorf("the only path: got %v", err)
		}
	}
}

// multipathd may take a disk that was found without a map at any time: the driver then
// uses the map.
func TestMapThatComesMeanwhileIsUsed(t *testing.T) {
	n := disktest.New(t)
	device := n.Disk(wwid, "sda")
	n.Programs["mkfs.ext4"] = func(args []string) error {
		if slices.Contains(args, filepath.Join(n.Dev, "sda")) {
			n.Gathered(device, "dm-0", "mpatha", "sda")
			return errors.New("/dev/sda is apparently in use by the system")
		}
		delete(n.Programs, "mkfs.ext4")
		return n.Run("mkfs.ext4", args...)
	}
	v, err := find(n, search(long, nil, "sda"))
	if err != nil {
		t.Fatal(err)
	}
	if calls := n.Calls(); len(calls) < 2 || calls[1] != "mkfs.ext4 -F -q -m 0 -E nodiscard /dev/dm-0" {
		t.Errorf("run %q", calls)
	}
	unstage(n, v)
}

// If devices go before they could be used, the driver scans once more.
func TestDevicesThatGoAreScannedFor(t *testing.T) {
	n := disktest.New(t)
	n.Disk(wwid, "sda", "sdb")
	n.Set("cancel", "block", "sda", "device", "state")
	scans := 0
	names := []string{"sda"}
	s := search(long, func(look int) {
		if look == 2 {
			names = nil
		}
	})
	inner := s.Find
	s.Find = func() ([]string, bool, error) {
		_, all, err := inner()
		return names, all, err
	}
	s.Scan = func() error {
		scans++
		names = []string{"sdb"}
		return nil
	}
	v, err := find(n, s)
	if err != nil || scans != 1 {
		t.Fatalf("%d scans, %v", scans, err)
	}
	unstage(n, v)
}

// Release deletes a device that is leaving, and one that udev has open, after udev has
// closed it. It leaves a device that is another disk now.
func TestReleaseOfWhatMoves(t *testing.T) {
	n := disktest.New(t)
	device := n.Disk(wwid, "sda")
	whole := withoutDriver(n, "sda")
	if err := n.Stager().Release(t.Context(), search(long, nil, "sda"), wwid); err != nil || n.Attribute("block", "sda", "device", "delete") != "1" {
		t.Errorf("leaving: %v", err)
	}
	whole()
	n.Gathered(device, "dm-0", "mpatha", "sda")
	tries := 0
	n.Programs["multipath"] = func([]string) error {
		if tries++; tries < 3 {
			return exited(1)
		}
		return nil
	}
	n.Set("", "block", "sda", "device", "delete")
	if err := n.Stager().Release(t.Context(), search(long, nil, "sda"), wwid); err != nil || tries != 3 || n.Attribute("block", "sda", "device", "delete") != "1" {
		t.Errorf("map in use: %v after %d tries", err, tries)
	}
	n.Set("", "block", "sda", "device", "delete")
	n.Calls()
	if err := n.Stager().Release(t.Context(), search(long, nil, "sda"), wwid+"b"); err != nil || n.Attribute("block", "sda", "device", "delete") != "" || len(n.Calls()) != 0 {
		t.Errorf("another disk: %v", err)
	}
}

// exited is the exit code of a program.
type exited int

func (e exited) Error() string { return "exit status" }
func (e exited) ExitCode() int { return int(e) }
