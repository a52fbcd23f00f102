package holders

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// shared is a file system with two volumes, each a directory that is mounted somewhere.
type shared struct {
	*testing.T
	source     string // directory of volume one on the file system
	one, other string // mount points
	use        string // where a user has a directory of volume one mounted
}

// share makes two volumes on the file system at dir.
func share(t *testing.T, dir string) shared {
	t.Helper()
	s := shared{t, dir + "/vols/one", filepath.Join(t.TempDir(), "a b"), t.TempDir(), t.TempDir()}
	for _, d := range []string{"/vols/one/data/deep", "/vols/other"} {
		must(t, os.MkdirAll(dir+d, 0o755))
	}
	must(t, os.Mkdir(s.one, 0o755))
	bind(t, dir+"/vols/one", s.one)
	bind(t, dir+"/vols/other", s.other)
	must(t, os.WriteFile(s.one+"/data/deep/file", make([]byte, 4096), 0o644))
	return s
}

func bind(t *testing.T, from, to string) {
	t.Helper()
	must(t, unix.Mount(from, to, "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = unix.Unmount(to, unix.MNT_DETACH) })
}

// mountUse mounts the directory data of volume one for a user.
func (s shared) mountUse() { must(s.T, unix.Mount(s.one+"/data", s.use, "", unix.MS_BIND, "")) }

// usesOfBoth returns how the process uses each volume.
func (s shared) usesOfBoth(pid int) (one, other []Use) {
	s.Helper()
	of := func(path string) []Use {
		for _, p := range find(s.T, Query{Paths: []string{path}}).Processes {
			if p.PID == pid {
				return p.Uses
			}
		}
		return nil
	}
	return of(s.one), of(s.other)
}

func detached(kind, path string) []Use { return []Use{{Kind: kind, Path: path, Detached: true}} }

// After umount -l the processes that used the mount still do, and the kernel shows paths that no mount table explains.
// Another volume of the same file system is not in use.
func TestUserOfALazilyUnmountedVolumeIsFound(t *testing.T) {
	memory := t.TempDir()
	must(t, unix.Mount("vols", memory, "tmpfs", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(memory, unix.MNT_DETACH) })
	for name, dir := range map[string]string{"of a file system in memory": memory, "of a disk": disk(t)} {
		s := share(t, dir)
		for _, tt := range []struct {
			what string
			want []Use
		}{
			{"fd:" + s.use + "/deep/file", detached("fd", "/deep/file")},
			{"path:" + s.use, detached("fd", "/")},
			{"gone:" + s.use + "/gone", detached("fd", "/gone")},
			{"map:" + s.use + "/deep/file", detached("map", "/deep/file")},
			{"cwd:" + s.use + "/deep", detached("cwd", "/deep")},
			{"root:" + s.use + "/deep", detached("root", "/deep")},
		} {
			s.mountUse()
			pid := holder(t, tt.what, false)
			must(t, unix.Unmount(s.use, unix.MNT_DETACH))
			if one, other := s.usesOfBoth(pid); !containsAll(one, tt.want) || other != nil {
				t.Errorf("%s, %s: uses %+v and of another volume %+v, want %+v and none", name, tt.what, one, other, tt.want)
			}
			if strings.HasPrefix(tt.what, "root:") {
				continue // it sees no directory to unmount
			}
			s.mountUse()
			pid = holder(t, tt.what+"|"+s.one+"|"+s.other+"|"+s.use, true)
			must(t, unix.Unmount(s.use, 0))
			if one, other := s.usesOfBoth(pid); !containsAll(one, tt.want) || other != nil {
				t.Errorf("%s, %s in a namespace: uses %+v and of another volume %+v, want %+v and none", name, tt.what, one, other, tt.want)
			}
		}
	}
}

// disk makes a disk of the test's own. The host's may be an overlay, whose handles tell no place.
func disk(t *testing.T) string {
	t.Helper()
	image, dir := filepath.Join(t.TempDir(), "disk"), t.TempDir()
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, 64<<20))
	for _, command := range [][]string{{"mkfs.ext4", "-q", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", command, err, out)
		}
	}
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

func containsAll(uses, want []Use) bool {
	return !slices.ContainsFunc(want, func(u Use) bool { return !slices.Contains(uses, u) })
}

func TestProgramOfALazilyUnmountedVolumeIsFound(t *testing.T) {
	s := share(t, disk(t))
	program, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	must(t, os.WriteFile(s.one+"/data/program", program, 0o755))
	s.mountUse()
	pid := run(t, s.use+"/program", "nothing", false)
	must(t, unix.Unmount(s.use, unix.MNT_DETACH))
	if one, other := s.usesOfBoth(pid); !containsAll(one, detached("exe", "/program")) || other != nil {
		t.Errorf("uses %+v and of another volume %+v", one, other)
	}
}

// A container has files that its engine opened in a namespace of its own: they are on no mount that was unmounted, and the
// engine's table tells which volume they are in, also of a deleted file, whose place no handle tells.
func TestAFileOfAThirdNamespaceIsOnNoLostMount(t *testing.T) {
	s := share(t, disk(t))
	for dir, want := range map[string][]Use{
		filepath.Join(filepath.Dir(s.source), "engine"): nil,
		s.source + "/data": {{Kind: "fd", Path: "/gone"}, {Kind: "fd", Path: "/deep/file"}},
	} {
		must(t, os.MkdirAll(dir, 0o755))
		at := filepath.Join(t.TempDir(), "at")
		must(t, os.Mkdir(at, 0o755))
		holder(t, "third:"+dir+"|"+at, true)
		text, err := os.ReadFile(at + ".pid")
		must(t, err)
		pid, err := strconv.Atoi(string(text))
		must(t, err)
		for i := range want {
			want[i].Path = at + want[i].Path
		}
		if one, other := s.usesOfBoth(pid); len(one) != len(want) || !containsAll(one, want) || other != nil {
			t.Errorf("%s: uses %+v and of another volume %+v, want %+v and none", dir, one, other, want)
		}
	}
}

// Each subvolume of btrfs has a device of its own, which no mount table shows.
func TestUserOfALazilyUnmountedSubvolumeIsFound(t *testing.T) {
	image, disk := filepath.Join(t.TempDir(), "disk"), t.TempDir()
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, 128<<20))
	for _, command := range [][]string{
		{"mkfs.btrfs", "-q", image},
		{"mount", "-o", "loop", image, disk},
		{"mkdir", disk + "/vols"},
		{"btrfs", "-q", "subvolume", "create", disk + "/vols/one"},
		{"btrfs", "-q", "subvolume", "create", disk + "/vols/other"},
		{"mkdir", disk + "/vols/one/data"},
		{"btrfs", "-q", "subvolume", "create", disk + "/vols/one/data/deep"},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", command, err, out)
		}
		if command[0] == "mount" {
			t.Cleanup(func() { must(t, unix.Unmount(disk, 0)) })
		}
	}
	s := share(t, disk)
	for _, what := range []string{"gone:" + s.use + "/gone", "cwd:" + s.use + "/deep", "map:" + s.use + "/deep/file"} {
		s.mountUse()
		pid := holder(t, what, false)
		must(t, unix.Unmount(s.use, unix.MNT_DETACH))
		if one, other := s.usesOfBoth(pid); len(one) == 0 || one[0].Unsure || other != nil {
			t.Errorf("%s: uses %+v and of another volume %+v", what, one, other)
		}
	}
}

// A FUSE server that does not answer is not asked.
func TestUserOfALazilyUnmountedFrozenVolumeIsFound(t *testing.T) {
	dir, again := frozen(t), t.TempDir()
	bind(t, dir, again)
	pid := holder(t, "path:"+dir, false)
	must(t, unix.Unmount(dir, unix.MNT_DETACH))
	f := &Finder{Patience: 10 * time.Second}
	r, err := f.Find(t.Context(), Query{Paths: []string{again}})
	must(t, err)
	if f.isHung("detached " + again) {
		t.Error("the server was asked")
	}
	if len(r.Processes) != 1 || r.Processes[0].PID != pid || !containsAll(r.Processes[0].Uses, detached("fd", "/")) {
		t.Errorf("processes %+v, want %d", r.Processes, pid)
	}
	if slices.ContainsFunc(r.Unread, func(u Unread) bool { return u.PID == pid }) {
		t.Errorf("not read: %+v", r.Unread)
	}
}

// Nor is one that is mounted over the volume, at the path where the volume is looked at.
func TestAFrozenFileSystemOverAVolumeIsNotAsked(t *testing.T) {
	s := share(t, t.TempDir())
	s.mountUse()
	holder(t, "fd:"+s.use+"/deep/file", false)
	must(t, unix.Unmount(s.use, unix.MNT_DETACH))
	bind(t, frozen(t), s.one)
	f := &Finder{Patience: 2 * time.Second}
	if _, err := f.Find(t.Context(), Query{Paths: []string{s.one}}); err != nil {
		t.Error(err)
	}
	if f.isHung("detached " + s.one) {
		t.Error("the server was asked")
	}
}

// Where the kernel cannot tell which volume of a file system has the file, the process may use each.
func TestFileWhoseVolumeCannotBeToldIsUnsure(t *testing.T) {
	for _, tt := range []struct {
		name   string
		tree   tree
		unsure bool
	}{
		{"the whole of a FUSE file system", tree{root: "/", fsType: "fuse.x"}, false},
		{"a directory of one", tree{root: "/one", fsType: "fuse.x"}, true},
		{"a disk", tree{root: "/", fsType: "ext4"}, false},
		{"an export of a server", tree{root: "/", fsType: "nfs4"}, true},
	} {
		s := &search{f: &Finder{}, q: Query{Paths: []string{"/x"}}}
		tt.tree.mounted, tt.tree.dev, tt.tree.path = true, 5, "/nowhere"
		s.trees = []tree{tt.tree, {root: "/", mounted: true, dev: 6}}
		s.loose = []candidate{{pid: os.Getpid(), use: detached("fd", "/f")[0], file: inode{5, 1}}}
		s.addDetached(t.Context())
		if r := s.report(); len(r.Processes) != 1 || len(r.Processes[0].Uses) != 1 || r.Processes[0].Uses[0].Unsure != tt.unsure {
			t.Errorf("%s: %+v", tt.name, r.Processes)
		}
	}
}

// The asker's own mounts, and copies of them, are no users; a container may mount the volume at a path like theirs.
func TestCopiesOfOwnMountsAreNotReported(t *testing.T) {
	host, copied, container := t.TempDir(), t.TempDir(), t.TempDir()
	root := host + "/kubelet"
	target := root + "/pods/u/mount"
	must(t, os.MkdirAll(target, 0o755))
	must(t, os.MkdirAll(container+target, 0o755))
	bind(t, host, host) // a directory that can be copied whole
	must(t, unix.Mount("vol", target, "tmpfs", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
	must(t, os.MkdirAll(copied+host, 0o755))
	must(t, unix.Mount(host, copied+host, "", unix.MS_BIND|unix.MS_REC, ""))
	t.Cleanup(func() { _ = unix.Unmount(copied+host, unix.MNT_DETACH) })
	pid := holder(t, "nothing", true)
	q := Query{Paths: []string{target}, Own: root}
	if r := find(t, q); r.Held() || len(r.Mounts) > 0 {
		t.Errorf("copies are reported: %+v", r)
	}
	bind(t, target, container+target)
	second := holder(t, "nothing", true)
	r := find(t, q)
	if want := []string{container + target}; !slices.Equal(r.Mounts, want) || len(r.Namespaces) != 1 ||
		r.Namespaces[0].PID != second || !slices.Equal(r.Namespaces[0].Mounts, want) {
		t.Errorf("got %+v, want %s here and in the namespace of %d, not of %d", r, want, second, pid)
	}
	if r := find(t, Query{Paths: []string{target}}); len(r.Mounts) != 3 {
		t.Errorf("without a directory of one's own: %q", r.Mounts)
	}
}
