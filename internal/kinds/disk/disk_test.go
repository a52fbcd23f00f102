package disk_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/disk"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/program"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest/disktest"
)

func TestMain(m *testing.M) { drivertest.Main(m) }

const (
	kind = state.DriverName("kubernetes.io/test")
	pod  = state.PodUID("7f3c2a10-0000-4000-8000-000000000001")
	wwid = "naa.6001405aaaaaaaaaaaaaaaaaaaaaaaaa"
)

// stage finds the disk of the devices with the given names, and mounts it.
func stage(n *disktest.Node, w disk.Want, names ...string) (state.Volume, error) {
	s := n.Stager()
	v := n.Volume(kind, "data", `{}`, pod)
	if err := s.Begin(n.Context(), v); err != nil {
		return v, err
	}
	d, err := s.Host.Found(names)
	if err != nil {
		return v, err
	}
	return v, s.Mount(n.Context(), v, d, w)
}

func unstage(n *disktest.Node, v state.Volume) {
	n.Helper()
	s := n.Stager()
	if _, err := s.Unmount(n.Context(), v); err != nil {
		n.Fatal(err)
	}
	if err := s.End(v); err != nil {
		n.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(n.Layout.Plugins(), string(kind))); err != nil || len(left) != 0 {
		n.Errorf("left: %v, %v", left, err)
	}
}

var ext4 = disk.Want{FSType: "ext4"}

// made returns the calls of programs that make file systems.
func made(calls []string) (programs []string) {
	for _, c := range calls {
		if strings.HasPrefix(c, "mkfs") {
			programs = append(programs, c)
		}
	}
	return programs
}

// A blank disk gets its file system once. When the disk is staged again, the pod's file
// is there.
func TestBlankDiskIsFormattedOnceAndKeepsItsData(t *testing.T) {
	n := disktest.New(t)
	n.Disk(wwid, "sda")
	for round := range 2 {
		v, err := stage(n, ext4, "sda")
		if err != nil {
			t.Fatal(err)
		}
		if v2, err := stage(n, ext4, "sda"); err != nil || v2.ID != v.ID { // repeated
			t.Fatal(err)
		}
		want := []string{"mkfs.ext4 -F -q -m 0 -E nodiscard /dev/sda"}
		if round == 1 {
			want = []string{"e2fsck -p /dev/sda"}
		}
		if calls := n.Calls(); !slices.Equal(calls, want) {
			t.Errorf("round %d: run %q, want %q", round, calls, want)
		}
		file := filepath.Join(v.Spec.StagePath, "file")
		if round == 0 {
			if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if b, err := os.ReadFile(file); err != nil || string(b) != "precious" {
			t.Errorf("round %d: %q, %v", round, b, err)
		}
		unstage(n, v)
	}
}

// R17: a disk with data on it is never formatted, wherever the data is.
//
// Items: M08.
// Faults: A029.
func TestDiskWithAnythingOnItIsNeverFormatted(t *testing.T) {
	const size = 16 << 20
	for _, at := range []int64{0, 1, 510, 1080, 4096, 65536, 1 << 20, 5<<20 + 7, size - 1<<20, size - 512, size - 1} {
		n := disktest.New(t)
		device := n.Disk(wwid, "sda")
		f, err := os.OpenFile(device, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte{1}, at); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := stage(n, ext4, "sda"); err == nil {
			t.Errorf("byte %d: mounted", at)
		}
		if calls := n.Calls(); len(calls) != 0 {
			t.Errorf("byte %d: run %q", at, calls)
		}
	}
}

// R17: a disk that cannot be read up to its reported size is not blank.
//
// Faults: A029.
func TestDiskThatCannotBeReadIsNeverFormatted(t *testing.T) {
	n := disktest.New(t)
	n.Disk(wwid, "sda")
	n.Set("65536", "block", "sda", "size") // twice the real size
	_, err := stage(n, ext4, "sda")
	if !errors.Is(err, disk.ErrNotBlank) && err == nil {
		t.Errorf("got %v", err)
	}
	if calls := made(n.Calls()); len(calls) != 0 {
		t.Errorf("run %q", calls)
	}
}

func TestReadOnlyBlankDiskIsRefused(t *testing.T) {
	n := disktest.New(t)
	n.Disk(wwid, "sda")
	_, err := stage(n, disk.Want{FSType: "ext4", ReadOnly: true}, "sda")
	if e, ok := errors.AsType[*state.CallError](err); !ok || e.Outcome != state.Refused || len(n.Calls()) != 0 {
		t.Errorf("got %v", err)
	}
}

// Stage repeats an interrupted mkfs, but only on the same disk.
func TestInterruptedFormatIsDoneAgain(t *testing.T) {
	n := disktest.New(t)
	device := n.Disk(wwid, "sda")
	cut := errors.New("killed")
	n.Programs["mkfs.ext4"] = func([]string) error { // half a file system
		return errors.Join(cut, os.WriteFile(device, []byte(strings.Repeat("x", 8192)), 0))
	}
	if _, err := stage(n, ext4, "sda"); !errors.Is(err, cut) {
		t.Fatalf("got %v", err)
	}
	delete(n.Programs, "mkfs.ext4")
	n.Calls()
	v, err := stage(n, ext4, "sda")
	if err != nil {
		t.Fatal(err)
	}
	if calls := n.Calls(); len(made(calls)) != 1 {
		t.Errorf("run %q", calls)
	}
	unstage(n, v)
}

// If a lone LUN comes back as another disk, the driver does not take it for the
// volume's.
//
// Faults: A035.
func TestDiskThatIsAnotherOneByNowIsRefused(t *testing.T) {
	n := disktest.New(t)
	n.Disk(wwid, "sda")
	v, err := stage(n, ext4, "sda")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Stager().Unmount(t.Context(), v); err != nil { // like a crash in Unstage
		t.Fatal(err)
	}
	n.Calls()
	n.Set("naa.6001405bbbbbbbbbbbbbbbbbbbbbbbbb", "block", "sda", "device", "wwid")
	if _, err := stage(n, ext4, "sda"); !errors.Is(err, disk.ErrIdentity) || !strings.Contains(err.Error(), wwid) {
		t.Errorf("got %v, want a refusal that names %s", err, wwid)
	}
	if _, err := n.Stager().Grow(t.Context(), v, []string{"sda"}, "ext4"); !errors.Is(err, disk.ErrIdentity) {
		t.Errorf("grow: got %v", err)
	}
	if calls := n.Calls(); len(calls) != 0 {
		t.Errorf("run %q", calls)
	}
	n.Set(wwid, "block", "sda", "device", "wwid")
	if v, err = stage(n, ext4, "sda"); err != nil {
		t.Fatal(err)
	}
	unstage(n, v)
}

// Faults: A027.
func TestWhatDoesNotSayWhichDiskItIsIsRefused(t *testing.T) {
	n := disktest.New(t)
	n.Disk("", "sda")
	n.Disk(wwid, "sdb")
	n.Disk(wwid+"0", "sdc")
	for _, names := range [][]string{{"sda"}, {"sda", "sdb"}, {"sdb", "sdc"}} {
		if _, err := stage(n, ext4, names...); !errors.Is(err, disk.ErrIdentity) {
			t.Errorf("%q: got %v", names, err)
		}
	}
	// The node of a removed device whose name another one has.
	n.Set("7:250", "block", "sdb", "dev")
	if _, err := stage(n, ext4, "sdb"); !errors.Is(err, disk.ErrIdentity) {
		t.Errorf("other device's node: got %v", err)
	}
	if err := errors.Join(os.Remove(filepath.Join(n.Dev, "sdc")), os.Symlink("sdb", filepath.Join(n.Dev, "sdc"))); err != nil {
		t.Fatal(err)
	}
	if _, err := stage(n, ext4, "sdc"); !errors.Is(err, unix.ELOOP) {
		t.Errorf("link: got %v", err)
	}
	if calls := n.Calls(); len(calls) != 0 {
		t.Errorf("run %q", calls)
	}
}

// The driver uses the multipath device, and removes it before its paths.
func TestMultipathDeviceIsUsedAndGoesFirst(t *testing.T) {
	n := disktest.New(t)
	device := n.Disk(wwid, "sda", "sdb")
	n.Programs["multipath"] = func(args []string) error {
		if args[0] != "-f" {
			n.Gathered(device, "dm-0", "mpatha", "sda", "sdb")
		}
		return nil
	}
	h := n.Stager().Host
	d, err := h.Found([]string{"sdb", "sda", "sdb"})
	if err == nil {
		d, err = h.CombinePaths(t.Context(), d)
	}
	if err != nil || d.Name != "dm-0" || d.Map != "mpatha" || !slices.Equal(d.Paths, []string{"sda", "sdb"}) {
		t.Fatalf("got %+v, %v", d, err)
	}
	if err := h.Free(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if calls, want := n.Calls(), []string{"multipath /dev/sda", "multipath -f mpatha"}; !slices.Equal(calls, want) {
		t.Errorf("run %q, want %q", calls, want)
	}
	for _, path := range d.Paths {
		if got := n.Attribute("block", path, "device", "delete"); got != "1" {
			t.Errorf("%s: told %q", path, got)
		}
	}
}

// A disk that is to have a map (multipath -c) is used only with it: the map may come later than the driver asks
// for it, since multipathd or another program has a path open. A disk that is to have none is used without.
func TestTheMapThatIsToComeIsAwaited(t *testing.T) {
	for name, c := range map[string]struct {
		claimed, comes bool
		calls          []string
		err            string
	}{
		"comes":       {true, true, []string{"multipath /dev/sda", "multipath -c /dev/sda"}, ""},
		"never comes": {true, false, []string{"multipath /dev/sda", "multipath -c /dev/sda"}, "multipath is to combine the paths"},
		"not claimed": {false, false, []string{"multipath /dev/sda", "multipath -c /dev/sda"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := disktest.New(t)
			device := n.Disk(wwid, "sda", "sdb")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			n.Programs["multipath"] = func(args []string) error {
				switch {
				case args[0] != "-c":
					return errors.New("a path is in use")
				case !c.claimed:
					return errors.New("exit status 1")
				}
				if c.comes {
					n.Gathered(device, "dm-0", "mpatha", "sda", "sdb")
				} else {
					cancel()
				}
				return nil
			}
			h := n.Stager().Host
			d, err := h.Found([]string{"sda", "sdb"})
			if err != nil {
				t.Fatal(err)
			}
			d, err = h.CombinePaths(ctx, d)
			if (d.Map != "") != c.comes || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %+v, %v", d, err)
			}
			if calls := n.Calls(); !slices.Equal(calls, c.calls) {
				t.Errorf("run %q, want %q", calls, c.calls)
			}
		})
	}
}

// multipathd is asked for the paths that its map lacks, also if it makes the map while the driver asks
// for one; a node without multipathd goes on with what there is.
func TestPathsThatTheMapLacksAreAdded(t *testing.T) {
	for _, there := range []bool{true, false} {
		n := disktest.New(t)
		device := n.Disk(wwid, "sda", "sdb")
		gather := func([]string) error {
			n.Gathered(device, "dm-0", "mpatha", "sda")
			return errors.New("multipathd makes the map")
		}
		n.Programs["multipath"] = gather
		n.Programs["multipathd"] = func([]string) error { return errors.New("no multipathd") }
		var want []string
		if there {
			_ = gather(nil)
		} else {
			want = []string{"multipath /dev/sda"}
		}
		h := n.Stager().Host
		d, err := h.Found([]string{"sda", "sdb"})
		if err == nil {
			d, err = h.CombinePaths(t.Context(), d)
		}
		if err != nil || d.Name != "dm-0" || d.Map != "mpatha" {
			t.Fatalf("got %+v, %v", d, err)
		}
		if calls, want := n.Calls(), append(want, "multipathd add path sdb"); !slices.Equal(calls, want) {
			t.Errorf("run %q, want %q", calls, want)
		}
	}
}

// Data that multipath has not written to the disk yet is lost with its paths: while the
// map cannot be flushed, the driver removes none of them.
//
// Faults: A034.
func TestPathsStayWhileTheMapCannotBeFlushed(t *testing.T) {
	n := disktest.New(t)
	device := n.Disk(wwid, "sda", "sdb")
	n.Gathered(device, "dm-0", "mpatha", "sda", "sdb")
	stuck := errors.New("map in use")
	n.Programs["multipath"] = func([]string) error { return stuck }
	h := n.Stager().Host
	d, err := h.Found([]string{"sda", "sdb"})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Free(t.Context(), d); !errors.Is(err, stuck) {
		t.Errorf("got %v", err)
	}
	for _, path := range d.Paths {
		if got := n.Attribute("block", path, "device", "delete"); got != "" {
			t.Errorf("%s: told %q", path, got)
		}
	}
	n.Programs["multipath"] = func([]string) error { return nil }
	if err := h.Free(t.Context(), d); err != nil || n.Attribute("block", "sda", "device", "delete") != "1" {
		t.Errorf("flushed: %v", err)
	}
}

// put writes b at an offset of a device.
func put(t *testing.T, device string, at int64, b []byte) {
	t.Helper()
	f, err := os.OpenFile(device, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(b, at)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// The volume's disk has another file system than when it was staged, or none: the
// driver neither mounts nor formats it, and the error names both.
//
// Faults: A028, A030.
func TestAnotherFileSystemIsRefused(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs", "btrfs"} {
		for name, change := range map[string]func(n *disktest.Node, device string){
			"another": func(n *disktest.Node, device string) {
				other := drivertest.Device(n.T, "ext4")
				b, err := os.ReadFile(other)
				if err != nil {
					n.Fatal(err)
				}
				put(n.T, device, 0, b)
			},
			"none": func(n *disktest.Node, device string) { put(n.T, device, 0, make([]byte, 16<<20)) },
		} {
			if fsType == "btrfs" && name == "none" {
				continue // 16 MiB are too few for btrfs, so the test writes its signature
			}
			t.Run(fsType+" "+name, func(t *testing.T) {
				n := disktest.New(t)
				device := n.Disk(wwid, "sda")
				n.Programs["mkfs.xfs"] = func(args []string) error {
					return new(program.Runner).Run(t.Context(), program.Command{Name: "mkfs.xfs", Args: append([]string{"--unsupported"}, args...)})
				}
				was := fsType + " "
				if fsType == "btrfs" { // only its signature, which the kernel is not asked about
					superblock := make([]byte, 4096)
					copy(superblock[0x40:], "_BHRfS_M")
					put(t, device, 64<<10, superblock)
					was += strings.Repeat("0", 32)
				}
				v, err := stage(n, disk.Want{FSType: fsType}, "sda")
				if (err == nil) == (fsType == "btrfs") {
					t.Fatal(err)
				}
				if _, err := n.Stager().Unmount(t.Context(), v); err != nil { // like a reboot
					t.Fatal(err)
				}
				n.Calls()
				change(n, device)
				before, err := os.ReadFile(device)
				if err != nil {
					t.Fatal(err)
				}
				_, err = stage(n, disk.Want{FSType: fsType}, "sda")
				was = strings.Replace(was, "ext4", "ext", 1)
				if !errors.Is(err, disk.ErrIdentity) || !strings.Contains(err.Error(), was) || name == "another" && !strings.Contains(err.Error(), `has "ext `) {
					t.Errorf("got %v, want a refusal with %q and what is there", err, was)
				}
				if calls := n.Calls(); len(calls) != 0 {
					t.Errorf("run %q", calls)
				}
				if after, err := os.ReadFile(device); err != nil || !bytes.Equal(before, after) {
					t.Errorf("the disk was written to: %v", err)
				}
			})
		}
	}
}

// A copy of an XFS disk is beside its original: the driver mounts both and changes
// neither for it. A second path to the same disk is no copy.
//
// Faults: A036.
func TestCopyBesideItsOriginal(t *testing.T) {
	n := disktest.New(t)
	original, clone := n.Disk(wwid, "sda"), n.Disk(wwid+"0", "sdb")
	if err := new(program.Runner).Run(t.Context(), program.Command{Name: "mkfs.xfs", Args: []string{"-q", "--unsupported", original}}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	put(t, clone, 0, b)
	s, xfs := n.Stager(), disk.Want{FSType: "xfs"}
	mount := func(name, device string) (state.Volume, error) {
		v := n.Volume(kind, name, `{}`, pod)
		if err := s.Begin(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		d, err := s.Host.Found([]string{device})
		if err != nil {
			t.Fatal(err)
		}
		return v, s.Mount(t.Context(), v, d, xfs)
	}
	first, err := mount("original", "sda")
	if err != nil {
		t.Fatal(err)
	}
	n.Set(wwid+"0", "block", "sdc", "device", "wwid") // another path to the copy, which may be the mounted one
	if _, err := mount("copy", "sdb"); err == nil {
		t.Error("mounted twice")
	}
	n.Set("naa.other", "block", "sdc", "device", "wwid")
	second, err := mount("copy", "sdb")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []state.Volume{first, second} {
		if err := os.WriteFile(filepath.Join(v.Spec.StagePath, "file"), []byte(v.ID), 0o600); err != nil {
			t.Error(err)
		}
	}
	for _, v := range []state.Volume{first, second} {
		if b, err := os.ReadFile(filepath.Join(v.Spec.StagePath, "file")); err != nil || string(b) != string(v.ID) {
			t.Errorf("%s: %q, %v", v.ID, b, err)
		}
		if _, err := s.Unmount(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		if err := s.End(v); err != nil {
			t.Fatal(err)
		}
	}
	const uuidEnd = 48 // in the superblock: magic number, sizes and UUID precede it
	for _, device := range []string{original, clone} {
		f, err := os.Open(device)
		if err != nil {
			t.Fatal(err)
		}
		head := make([]byte, uuidEnd)
		_, err = f.ReadAt(head, 0)
		if err := errors.Join(err, f.Close()); err != nil || !bytes.Equal(head, b[:uuidEnd]) {
			t.Errorf("%s: its superblock was changed: %v", device, err)
		}
	}
}

// The driver does not remove a device that another namespace still has mounted.
func TestDiskInUseIsNotRemoved(t *testing.T) {
	n := disktest.New(t)
	n.Disk(wwid, "sda")
	v, err := stage(n, ext4, "sda")
	if err != nil {
		t.Fatal(err)
	}
	h := n.Stager().Host
	d, err := h.Found([]string{"sda"})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Free(t.Context(), d); !errors.Is(err, disk.ErrInUse) {
		t.Errorf("got %v", err)
	}
	if got := n.Attribute("block", "sda", "device", "delete"); got != "" {
		t.Errorf("told %q", got)
	}
	unstage(n, v)
	if err := h.Free(t.Context(), d); err != nil || n.Attribute("block", "sda", "device", "delete") != "1" {
		t.Errorf("got %v", err)
	}
}

// Publish needs the stage and binds it, read-only if asked. Unpublish leaves the stage.
//
// Items: M16.
func TestPodsSeeTheStage(t *testing.T) {
	n := disktest.New(t)
	n.Disk(wwid, "sda")
	s := n.Stager()
	if err := s.Publish(t.Context(), n.Volume(kind, "data", `{}`, pod), pod); err == nil {
		t.Error("published without a stage")
	}
	v, err := stage(n, ext4, "sda")
	if err != nil {
		t.Fatal(err)
	}
	m := v.Mounts[pod]
	m.ReadOnly = true
	v.Mounts[pod] = m
	for range 2 {
		if err := s.Publish(t.Context(), v, pod); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(m.Target, "file"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("read-only: got %v", err)
	}
	for range 2 {
		if err := s.Unpublish(t.Context(), v, pod); err != nil {
			t.Fatal(err)
		}
	}
	if seen, err := s.Kernel.Look(t.Context(), v.Spec.StagePath); err != nil || !seen.Mounted {
		t.Errorf("stage: %+v, %v", seen, err)
	}
	unstage(n, v)
}

// A disk of the network comes from outside the node: device nodes and set-user-id programs on it have no effect, neither
// at the stage nor in a pod's directory, unless the volume's mountOptions say so.
func TestDevicesAndSetUserIDOfADiskHaveNoEffect(t *testing.T) {
	for _, c := range []struct {
		options []string
		want    int64
	}{{nil, unix.ST_NOSUID | unix.ST_NODEV}, {[]string{"suid,dev"}, 0}, {[]string{"dev"}, unix.ST_NOSUID}} {
		n := disktest.New(t)
		n.Disk(wwid, "sda")
		want := ext4
		want.Flags = c.options
		v, err := stage(n, want, "sda")
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Stager().Publish(t.Context(), v, pod); err != nil {
			t.Fatal(err)
		}
		for _, at := range []string{v.Spec.StagePath, v.Mounts[pod].Target} {
			var st unix.Statfs_t
			if err := unix.Statfs(at, &st); err != nil || int64(st.Flags)&(unix.ST_NOSUID|unix.ST_NODEV) != c.want {
				t.Errorf("%q at %s: flags %#x, %v, want %#x", c.options, at, st.Flags, err, c.want)
			}
		}
		if err := n.Stager().Unpublish(t.Context(), v, pod); err != nil {
			t.Fatal(err)
		}
		unstage(n, v)
	}
}

// What is mounted below one pod's directory is not in the stage, unless the pod asked to share its mounts.
func TestMountsBelowAPodsDirectoryAreNotInTheStage(t *testing.T) {
	n := disktest.New(t)
	n.Disk(wwid, "sda")
	s := n.Stager()
	v, err := stage(n, ext4, "sda")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Kernel.SetPropagation(v.Spec.StagePath, mount.Shared); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(v.Spec.StagePath+"/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, peer := range []bool{false, true} {
		m := v.Mounts[pod]
		if peer {
			m.Context = map[string]string{"csi-volmgr.dev/mount-propagation": "Bidirectional"}
		}
		v.Mounts[pod] = m
		if err := s.Publish(t.Context(), v, pod); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("x", m.Target+"/sub", "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		if seen, err := s.Kernel.Look(t.Context(), v.Spec.StagePath+"/sub"); err != nil || seen.Mounted != peer {
			t.Errorf("peer %v: in the stage %+v, %v", peer, seen, err)
		}
		if err := unix.Unmount(m.Target+"/sub", 0); err != nil {
			t.Fatal(err)
		}
		if err := s.Unpublish(t.Context(), v, pod); err != nil {
			t.Fatal(err)
		}
	}
	unstage(n, v)
}

func TestStageElsewhereIsRefused(t *testing.T) {
	n := disktest.New(t)
	v := n.Volume(kind, "data", `{}`)
	v.Spec.StagePath = filepath.Join(n.Layout.Root, "elsewhere")
	err := n.Stager().Begin(t.Context(), v)
	_, unmountErr := n.Stager().Unmount(t.Context(), v)
	for _, err := range []error{err, unmountErr} {
		if e, ok := errors.AsType[*state.CallError](err); !ok || e.Outcome != state.Refused {
			t.Errorf("got %v", err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.Stager().Begin(ended, n.Volume(kind, "data", `{}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestGrowTellsEveryPathAndTheFileSystem(t *testing.T) {
	n := disktest.New(t)
	n.Disk(wwid, "sda", "sdb")
	v, err := stage(n, ext4, "sda", "sdb")
	if err != nil {
		t.Fatal(err)
	}
	for fsType, want := range map[string]string{
		"ext4": "resize2fs /dev/sda", "xfs": "xfs_growfs " + v.Spec.StagePath, "btrfs": "btrfs filesystem resize max " + v.Spec.StagePath,
	} {
		name, _, _ := strings.Cut(want, " ")
		n.Programs[name] = func([]string) error { return nil }
		n.Calls()
		if size, err := n.Stager().Grow(t.Context(), v, []string{"sda", "sdb"}, fsType); err != nil || size != 16<<20 {
			t.Errorf("%s: got %d, %v", fsType, size, err)
		}
		if calls := n.Calls(); !slices.Equal(calls, []string{want}) {
			t.Errorf("%s: run %q, want %q", fsType, calls, want)
		}
	}
	for _, path := range []string{"sda", "sdb"} {
		if got := n.Attribute("block", path, "device", "rescan"); got != "1" {
			t.Errorf("%s: told %q", path, got)
		}
	}
	unstage(n, v)
}

// A raw block volume is the disk's device node, at the stage and in each pod. The
// driver formats nothing, and growing it only needs a rescan by the kernel.
func TestRawBlockVolume(t *testing.T) {
	n := disktest.New(t)
	device := n.Disk(wwid, "sda")
	s := n.Stager()
	v := n.Volume(kind, "data", `{}`, pod)
	v.Spec.Mode = state.Block
	for range 2 {
		if err := s.Begin(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		if err := s.Stage(t.Context(), v, search(long, nil, "sda"), disk.Want{FSType: "ext4"}); err != nil {
			t.Fatal(err)
		}
		if err := s.Publish(t.Context(), v, pod); err != nil {
			t.Fatal(err)
		}
	}
	var want unix.Stat_t
	if err := unix.Stat(device, &want); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{v.Spec.StagePath, v.Mounts[pod].Target} {
		if seen, err := s.Kernel.Look(t.Context(), path); err != nil || !seen.BlockDevice || !seen.Mounted || seen.Dev != uint64(unix.Major(want.Rdev))<<32|uint64(unix.Minor(want.Rdev)) {
			t.Errorf("%s: got %+v, %v", path, seen, err)
		}
	}
	if size, err := s.Grow(t.Context(), v, []string{"sda"}, "ext4"); err != nil || size != 16<<20 || n.Attribute("block", "sda", "device", "rescan") != "1" {
		t.Errorf("grow: %d, %v", size, err)
	}
	for range 2 {
		if err := s.Unpublish(t.Context(), v, pod); err != nil {
			t.Fatal(err)
		}
	}
	unstage(n, v)
	if err := s.Publish(t.Context(), v, pod); err == nil {
		t.Error("published without a stage")
	}
	if calls := n.Calls(); len(calls) != 0 {
		t.Errorf("run %q", calls)
	}
}

// C27: the driver mounts no file system type that ignores the disk, and none that the
// disk does not have, whether the disk is unused or mounted elsewhere on the node.
//
// Attacks: C27.
func TestAttackFileSystemThatIgnoresItsDiskIsNotMounted(t *testing.T) {
	n := disktest.New(t)
	device := n.Disk(wwid, "sda")
	if err := new(program.Runner).Run(t.Context(), program.Command{Name: "mkfs.ext4", Args: []string{"-q", device}}); err != nil {
		t.Fatal(err)
	}
	for _, held := range []bool{false, true} {
		if held {
			at := t.TempDir()
			if err := unix.Mount(device, at, "ext4", 0, ""); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { unix.Unmount(at, unix.MNT_DETACH) })
		}
		for _, w := range []disk.Want{
			{FSType: "proc"},
			{FSType: "cgroup2"},
			{FSType: "devtmpfs"},
			{FSType: "overlay", Flags: []string{"lowerdir=/etc:/usr"}},
			{FSType: "ext4", Flags: []string{"journal_path=/dev/null"}},
			{FSType: "xfs"},
		} {
			v, err := stage(n, w, "sda")
			if e, ok := errors.AsType[*state.CallError](err); !ok || e.Outcome != state.Refused {
				t.Errorf("in use %v, %+v: got %v, want a refusal", held, w, err)
			}
			unstage(n, v)
		}
	}
}
