package doctor

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const all = mount.OpenAt2 | mount.MountTree | mount.FSContext | mount.MountRoot | mount.MountID | mount.NoSwap

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// host is a healthy host.
func host(t *testing.T) Config {
	t.Helper()
	dir, err := os.MkdirTemp("", "doctor-") // the path of t.TempDir is too long for a socket
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	c := Config{
		Root: dir + "/root", StateDir: dir + "/state", RegistrationDir: dir + "/root/plugins_registry", Socket: dir + "/s", Host: dir + "/host", Path: []string{dir + "/none", dir + "/bin"},
		Features: all, Shared: func(string) (bool, error) { return true, nil }, Kubelet: func(string) (string, error) { return "", nil },
		Unreached: func(string) (string, error) { return "", nil },
	}
	for path, text := range map[string]string{
		"host/proc/sys/kernel/osrelease": "6.12.1\n", "host/proc/sys/kernel/random/boot_id": "b\n",
		"host/proc/sys/fs/inotify/max_user_watches": "65536", "host/proc/sys/fs/inotify/max_user_instances": "512", "host/proc/sys/fs/mount-max": "10",
		"host/proc/self/mountinfo": "a\nb\n", "host/proc/filesystems": "nodev\tnfs4\n\text4\n",
		"host/lib/modules/6.12.1/modules.dep": "kernel/net/ceph/libceph.ko.xz:\nkernel/fs/smb/client/cifs.ko: x.ko\n", "host/lib/modules/6.12.1/modules.builtin": "kernel/drivers/scsi/iscsi_tcp.ko\n",
		"host/dev/loop-control": "", "host/etc/machine-id": "3d1219c7c4c5404aaa1f6d2a48adfda4\n", "host/proc/7/comm": "iscsid\n",
	} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600))
	}
	for _, d := range []string{"root/plugins_registry", "state", "bin"} {
		must(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	for _, name := range []string{"mount.nfs", "iscsiadm", "multipath", "mkfs.ext4", "resize2fs", "mkfs.xfs", "xfs_growfs"} {
		must(t, os.WriteFile(filepath.Join(dir, "bin", name), nil, 0o700))
	}
	return c
}

func find(t *testing.T, r Report, check string) Finding {
	t.Helper()
	for _, f := range r.Findings {
		if f.Check == check {
			return f
		}
	}
	t.Fatalf("there is no check %s in %+v", check, r)
	return Finding{}
}

// ours returns the failed checks that do not depend on the host of the test.
func ours(r Report) (bad []Finding) {
	for _, f := range r.Findings {
		switch f.Check {
		case "clock.synchronised", "limit.files", "root.space", "root.inodes", "state.space", "state.inodes":
		default:
			if f.Status != OK && !strings.Contains(f.Found, "nodev") { // /tmp may be mounted nodev
				bad = append(bad, f)
			}
		}
	}
	return bad
}

func TestAHostThatHasAllIsSound(t *testing.T) {
	c := host(t)
	c.Drivers = []state.DriverName{"local.csi-volmgr.dev", "driver.longhorn.io", "nfs.csi.k8s.io", "smb.csi.k8s.io", "unknown.example.com"}
	if bad := ours(Examine(c)); len(bad) != 0 {
		t.Errorf("found %+v", bad)
	}
}

func TestWhatIsMissingIsToldWithWhatToDo(t *testing.T) {
	write := func(path, text string) func(*testing.T, *Config) {
		return func(t *testing.T, c *Config) {
			must(t, os.MkdirAll(filepath.Dir(filepath.Join(c.Host, path)), 0o755))
			must(t, os.WriteFile(filepath.Join(c.Host, path), []byte(text), 0o600))
		}
	}
	driver := func(name state.DriverName) func(*testing.T, *Config) {
		return func(_ *testing.T, c *Config) { c.Drivers = []state.DriverName{name} }
	}
	for _, tt := range []struct {
		check  string
		want   Status
		advice string
		change func(t *testing.T, c *Config)
	}{
		{"kernel.release", Warn, "4.18 and later", write("proc/sys/kernel/osrelease", "4.4.302-generic\n")},
		{"kernel.openat2", Warn, "element by element", func(_ *testing.T, c *Config) { c.Features &^= mount.OpenAt2 }},
		{"kernel.tmpfs-noswap", Warn, "encrypt swap", func(_ *testing.T, c *Config) { c.Features &^= mount.NoSwap }},
		{"kernel.user", Warn, "root", func(_ *testing.T, c *Config) { c.UID = 1000 }},
		{"kernel.boot-id", Fail, "rebooted", func(t *testing.T, c *Config) {
			must(t, os.Remove(c.Host+"/proc/sys/kernel/random/boot_id"))
		}},
		{"storage.id", Warn, "--storage-id=NAME", write("etc/machine-id", "uninitialized\n")},
		{"storage.id", Warn, "--storage-id=ID", func(t *testing.T, c *Config) {
			must(t, os.WriteFile(c.StateDir+"/storage-id", []byte("torn"), 0o600))
		}},
		{"storage.id", Warn, "with --storage-id=0123", func(t *testing.T, c *Config) {
			must(t, os.WriteFile(c.StateDir+"/storage-id", []byte(`{"chosen":{"id":"0123","from":"machine-id"},"crc":"ad9fdfba"}`), 0o600))
		}},
		{"root.propagation", Warn, "mount --make-rshared", func(_ *testing.T, c *Config) {
			c.Shared = func(string) (bool, error) { return false, nil }
		}},
		{"root.propagation", Warn, "findmnt", func(_ *testing.T, c *Config) {
			c.Shared = func(string) (bool, error) { return false, errors.New("no") }
		}},
		{"root.kubelet", Fail, "csi-volmgr adopt", func(_ *testing.T, c *Config) {
			c.Kubelet = func(string) (string, error) { return "process 1 is one", nil }
		}},
		{"root.directory", Fail, "chmod go-w", func(t *testing.T, c *Config) { must(t, os.Chmod(c.Root, 0o777)) }},
		{"state.directory", Fail, "move it away", func(t *testing.T, c *Config) {
			must(t, os.Remove(c.StateDir))
			must(t, os.WriteFile(c.StateDir, nil, 0o600))
		}},
		{"socket.api", Fail, "at most 107 bytes", func(_ *testing.T, c *Config) { c.Socket = "/" + strings.Repeat("x", 107) }},
		{"socket.drivers", Warn, "shorter --root-dir", func(_ *testing.T, c *Config) { c.Root = "/" + strings.Repeat("x", 90) }},
		{"socket.d", Warn, "start the driver's registrar", func(t *testing.T, c *Config) {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: c.RegistrationDir + "/d-reg.sock", Net: "unix"})
			must(t, err)
			l.SetUnlinkOnClose(false)
			must(t, l.Close())
		}},
		{"limit.watches", Warn, "sysctl -w fs.inotify.max_user_watches=8192", write("proc/sys/fs/inotify/max_user_watches", "10")},
		{"limit.watchers", Warn, "at least 128", write("proc/sys/fs/inotify/max_user_instances", "?")},
		{"limit.mounts", Warn, "sysctl -w fs.mount-max=4", write("proc/sys/fs/mount-max", "2")},
		{"program.mount.nfs", Warn, "nfs-common", func(t *testing.T, c *Config) { must(t, os.Remove(c.Path[1]+"/mount.nfs")) }},
		{"driver.local.csi-volmgr.dev.loop", Fail, "modprobe loop", func(t *testing.T, c *Config) {
			driver("local.csi-volmgr.dev")(t, c)
			must(t, os.Remove(c.Host+"/dev/loop-control"))
		}},
		{"driver.d.example.com.propagation", Fail, "mountPropagation: Bidirectional", func(t *testing.T, c *Config) {
			driver("d.example.com")(t, c)
			listen(t, c.Root+"/plugins/d.example.com/csi.sock")
			c.Unreached = func(string) (string, error) { return "process 7 has a private mount", nil }
		}},
		{"driver.d.example.com.propagation", Warn, "as root", func(t *testing.T, c *Config) {
			driver("d.example.com")(t, c)
			listen(t, c.Root+"/plugins/d.example.com/csi.sock")
			c.Unreached = func(string) (string, error) { return "", errors.New("permission denied") }
		}},
		{"driver.driver.longhorn.io.iscsid", Fail, "systemctl enable", func(t *testing.T, c *Config) {
			driver("driver.longhorn.io")(t, c)
			must(t, os.Remove(c.Host+"/proc/7/comm"))
		}},
		{"driver.driver.longhorn.io.multipathd", Fail, "blacklist {", func(t *testing.T, c *Config) {
			driver("driver.longhorn.io")(t, c)
			write("proc/8/comm", "multipathd")(t, c)
		}},
		{"driver.nfs.csi.k8s.io.nfs", Fail, "modprobe nfsv4", func(t *testing.T, c *Config) {
			driver("nfs.csi.k8s.io")(t, c)
			write("proc/filesystems", "")(t, c)
		}},
		{"driver.rbd.csi.ceph.com.rbd", Fail, "modprobe rbd", driver("rbd.csi.ceph.com")},
		{"driver.cephfs.csi.ceph.com.ceph", Fail, "modprobe ceph", driver("cephfs.csi.ceph.com")},
		{"volumes.owner", Warn, "get pv", func(_ *testing.T, c *Config) {
			c.Contended = map[string]string{"persistentvolume d": "claims a/x, b/y name it"}
		}},
		{"driver.topolvm.io.dm", Fail, "modprobe dm_mod", driver("topolvm.io")},
	} {
		t.Run(tt.check, func(t *testing.T) {
			c := host(t)
			tt.change(t, &c)
			r := Examine(c)
			if f := find(t, r, tt.check); f.Status != tt.want || !strings.Contains(f.Advice, tt.advice) || f.Found == "" {
				t.Errorf("found %+v, want %s with %q", f, tt.want, tt.advice)
			}
			if bad := ours(r); len(bad) != 1 {
				t.Errorf("others are not as they should be: %+v", bad)
			}
			if r.Status == OK || tt.want == Fail && r.Status != Fail {
				t.Errorf("status of all: %s", r.Status)
			}
		})
	}
}

func TestMultipathWithABlacklistIsSound(t *testing.T) {
	c := host(t)
	c.Drivers = []state.DriverName{"driver.longhorn.io"}
	for path, text := range map[string]string{"/proc/8/comm": "multipathd", "/etc/multipath.conf": "blacklist { }"} {
		must(t, os.MkdirAll(filepath.Dir(c.Host+path), 0o755))
		must(t, os.WriteFile(c.Host+path, []byte(text), 0o600))
	}
	if f := find(t, Examine(c), "driver.driver.longhorn.io.multipathd"); f.Status != OK {
		t.Errorf("found %+v", f)
	}
}

func TestADiskThatIsAboutFull(t *testing.T) {
	for _, tt := range []struct {
		free [2]uint64
		want Status
	}{{[2]uint64{50, 100}, OK}, {[2]uint64{4, 100}, Warn}, {[2]uint64{0, 100}, Fail}, {[2]uint64{0, 0}, Fail}} {
		e := &examination{}
		e.space("x", "bytes", "have more", tt.free)
		if f := e.report.Findings[0]; f.Status != tt.want {
			t.Errorf("%v: %+v, want %s", tt.free, f, tt.want)
		}
	}
}

// A directory that does not exist yet is checked at the parent in which it will be made.
func TestDirectoriesThatAreToBeMade(t *testing.T) {
	c := host(t)
	c.StateDir += "/a/b"
	if f := find(t, Examine(c), "state.directory"); f.Status != OK || f.Found != filepath.Dir(filepath.Dir(c.StateDir)) {
		t.Errorf("found %+v", f)
	}
}

func listen(t *testing.T, path string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	l, err := net.Listen("unix", path)
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
}

// A driver in this process's own namespace has no problem.
//
// Faults: A161.
func TestTheMountsOfADriverInOurNamespaceReachThisHost(t *testing.T) {
	c := host(t)
	socket := c.Root + "/plugins/d/csi.sock"
	listen(t, socket)
	if why, err := Unreached(t.Context(), socket, c.Root); why != "" || err != nil {
		t.Errorf("%q, %v", why, err)
	}
	if _, err := Unreached(t.Context(), socket+"x", c.Root); err == nil {
		t.Error("nothing listens, and no error says so")
	}
}

// The id that the names of volumes have is shown before it is chosen, and after.
func TestTheStorageIDIsShown(t *testing.T) {
	for name, tc := range map[string]struct {
		file, journal, want string
	}{
		"new":             {"", "", "not chosen yet; of the machine's id: e85d0f5bb49748ac8172eac72a218055"},
		"earlier version": {"", "state.db.lock", "not chosen yet; an earlier version used the node: none"},
		"chosen":          {`{"chosen":{"id":"rack-7","from":"operator"},"crc":"4f683a23"}`, "state.db", "rack-7 (operator)"},
		"none":            {`{"chosen":{"id":"","from":"earlier-version"},"crc":"b15f326d"}`, "state.db", "none (earlier-version)"},
		"waits":           {`{"chosen":null,"crc":"00000000"}`, "state.db", "not chosen yet; of the machine's id: e85d0f5bb49748ac8172eac72a218055"},
	} {
		c := host(t)
		for file, text := range map[string]string{"storage-id": tc.file, tc.journal: "x"} {
			if file != "" && text != "" {
				must(t, os.WriteFile(filepath.Join(c.StateDir, file), []byte(text), 0o600))
			}
		}
		if f := find(t, Examine(c), "storage.id"); f.Status != OK || f.Found != tc.want {
			t.Errorf("%s: %+v, want %q", name, f, tc.want)
		}
	}
}
