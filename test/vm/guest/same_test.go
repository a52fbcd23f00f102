//go:build vm

package guest

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/host/holders"
	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// network is a file system whose server has directories that can be mounted one by one.
type network struct {
	name string
	// serve starts the server, or loads what its file system needs.
	serve func(t *testing.T)
	// mount mounts the server's directory vol, vol/sub or home.
	mount func(t *testing.T, dir, at string)
	// shared is set if all mounts of the server's directories are of one file system. Otherwise each
	// has a device of its own, and only a bind mount is another mount of the same.
	shared bool
}

func networks() []network {
	return []network{
		{"nfs4", serveDirectories, mountNFS4, true},
		{"nfs3", serveDirectories, mountNFS3, true},
		{"9p", modules("virtio_pci", "9pnet_virtio"), func(t *testing.T, dir, at string) {
			sh(t, "mount", "-t", "9p", "-o", "trans=virtio,version=9p2000.L", dir, at)
		}, false},
		{"fuse", modules("fuse"), func(t *testing.T, _, at string) { harness.EmptyFUSE(t, at) }, false},
	}
}

func modules(names ...string) func(t *testing.T) {
	return func(t *testing.T) { sh(t, "modprobe", append([]string{"-a"}, names...)...) }
}

func mountNFS4(t *testing.T, dir, at string) {
	t.Helper()
	sh(t, "mount", "-t", "nfs", "-o", "vers=4.2", "127.0.0.1:/"+dir, at)
}

func mountNFS3(t *testing.T, dir, at string) {
	t.Helper()
	sh(t, "mount", "-t", "nfs", "-o", "vers=3,nolock", "127.0.0.1:"+export+"/"+dir, at)
}

// serveDirectories starts the NFS server with the directories that tests mount.
func serveDirectories(t *testing.T) {
	t.Helper()
	serveNFS(t)
	for _, dir := range []string{"vol/sub", "home"} {
		mkdir(t, filepath.Join(export, dir))
	}
}

// On each network file system: a mount of another directory of the server, made before or after,
// is no mount of the volume, and a process there does not hold it. A bind mount of the volume
// is one, and so is a second mount of its directory where the two are one file system.
func TestWhichMountsShowOneDirectory(t *testing.T) {
	for _, fs := range networks() {
		t.Run(fs.name, func(t *testing.T) {
			fs.serve(t)
			l := layout(t)
			s := sameness{t, mount.New(l.Root), t.TempDir()}
			stage := mkdir(t, filepath.Join(l.Root, "stage"))
			fs.mount(t, "home", mkdir(t, s.at("home")))
			fs.mount(t, "vol", stage)
			defer s.unmount(stage)
			t.Logf("the kernel shows %s\nand %s", mountOf(t, stage), mountOf(t, s.at("home")))
			s.want(stage, "beside a mount of home, made before")
			s.unmount(s.at("home"))
			fs.mount(t, "home", s.at("home"))
			s.want(stage, "beside a mount of home, made after")
			s.bind(s.at("home"), "beside")
			s.want(stage, "beside a bind mount of home")
			s.bind(stage, "bound")
			s.want(stage, "and a bind mount", "bound")
			if fs.shared {
				fs.mount(t, "vol", mkdir(t, s.at("again")))
				s.want(stage, "and a second mount", "again", "bound")
				fs.mount(t, "vol/sub", mkdir(t, s.at("sub")))
				s.bind(filepath.Join(stage, "sub"), "sub-bound")
				s.want(stage, "and mounts of a directory in it", "again", "bound")
				s.want(s.at("sub"), "of a directory in it", "sub-bound")
			}
			s.usedIn(stage, s.at("home"), false)
			s.usedIn(stage, s.at("bound"), true)
			for _, line := range strings.Split(read(t, "/proc/self/mountinfo"), "\n") {
				if path := strings.Fields(line)[4]; filepath.Dir(path) == s.dir {
					s.unmount(path)
				}
			}
		})
	}
}

// sameness asks what else is a mount of a directory.
type sameness struct {
	*testing.T
	kernel *mount.Kernel
	dir    string // of the other mounts
}

func (s sameness) at(name string) string { return filepath.Join(s.dir, name) }

func (s sameness) unmount(path string) {
	s.Helper()
	sh(s.T, "umount", path)
}

func (s sameness) bind(from, name string) {
	s.Helper()
	sh(s.T, "mount", "--bind", from, mkdir(s.T, s.at(name)))
}

// want fails the test unless the names are those of all other mounts of what is at path.
func (s sameness) want(path, when string, names ...string) {
	s.Helper()
	var want []string
	for _, name := range names {
		want = append(want, s.at(name))
	}
	elsewhere, err := s.kernel.Elsewhere(s.Context(), path)
	if err != nil {
		s.Fatal(err)
	}
	refs, err := mount.NewMounter(s.kernel).GetMountRefs(path)
	if err != nil {
		s.Fatal(err)
	}
	for what, got := range map[string][]string{"elsewhere": elsewhere, "references": refs} {
		if slices.Sort(got); !slices.Equal(got, want) {
			s.Errorf("%s: %s: got %q, want %q", when, what, got, want)
		}
	}
}

// usedIn fails the test unless a process in dir holds the volume, or does not.
func (s sameness) usedIn(volume, dir string, want bool) {
	s.Helper()
	cmd := exec.CommandContext(s.Context(), "sleep", "100000")
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	report, err := new(holders.Finder).Find(s.Context(), holders.Query{Paths: []string{volume}, Patience: patience})
	if err != nil {
		s.Fatal(err)
	}
	if got := slices.ContainsFunc(report.Processes, func(p holders.Process) bool { return p.PID == cmd.Process.Pid }); got != want {
		s.Errorf("a process in %s uses %s: %v, want %v: %+v", dir, volume, got, want, report)
	}
	if slices.Contains(report.Mounts, s.at("home")) {
		s.Errorf("mounts of %s: %q", volume, report.Mounts)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // fails, since the process was killed
}
