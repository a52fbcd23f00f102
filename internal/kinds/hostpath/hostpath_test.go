package hostpath_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/hostpath"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
)

func TestMain(m *testing.M) { drivertest.Main(m) }

func newDriver(l state.Layout, allow ...string) *hostpath.Driver {
	return hostpath.New(hostpath.Config{Layout: l, Kernel: mount.New(l.Root), Allow: allow})
}

// After a restart the driver removes a volume with nothing but its record.
//
// Items: M15.
func TestContract(t *testing.T) {
	drivertest.Run(t, func(t *testing.T, l state.Layout) drivertest.Subject {
		dir := filepath.Join(l.Root+"-host", "data") // the same one after a restart
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(filepath.Dir(dir)) })
		return drivertest.Subject{
			Driver: newDriver(l, filepath.Dir(dir)), Kind: hostpath.Kind, HostPath: dir,
			Config: json.RawMessage(fmt.Sprintf(`{"path": %q, "type": "Directory"}`, dir)),
			Fail: func(fail bool) {
				from, to := dir, dir+".away"
				if !fail {
					from, to = to, from
				}
				if err := os.Rename(from, to); err != nil {
					t.Error(err)
				}
			},
		}
	})
}

const pod = state.PodUID("7f3c2a10-0000-4000-8000-000000000001")

// node is a node that allows paths below dir.
type node struct {
	*testing.T
	layout state.Layout
	dir    string
	driver *hostpath.Driver
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{T: t, layout: state.Layout{Root: t.TempDir()}, dir: t.TempDir()}
	n.driver = newDriver(n.layout, n.dir)
	return n
}

func (n *node) volume(path, kind string) state.Volume {
	n.Helper()
	config, err := json.Marshal(map[string]string{"path": path, "type": kind})
	if err != nil {
		n.Fatal(err)
	}
	return state.Volume{
		Spec: &state.Spec{Driver: hostpath.Kind, Name: "host", Builtin: true, Config: config},
		Mounts: map[state.PodUID]state.Mount{pod: {MountSpec: state.MountSpec{
			Pod: state.Pod{UID: pod}, Target: n.layout.BuiltinTarget(hostpath.Kind, pod, "host"), HostPath: filepath.Clean(path),
		}}},
	}
}

func (n *node) publish(path, kind string) error {
	return n.driver.Publish(n.Context(), n.volume(path, kind), pod)
}

// put makes an object of the given kind at path; "" makes nothing.
func (n *node) put(path, what string) {
	n.Helper()
	var err error
	switch what {
	case "":
	case "directory":
		err = os.Mkdir(path, 0o700)
	case "file":
		err = os.WriteFile(path, []byte("x"), 0o600)
	case "socket":
		err = unix.Mknod(path, unix.S_IFSOCK|0o600, 0)
	case "pipe":
		err = unix.Mkfifo(path, 0o600)
	case "character device":
		err = unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))
	case "block device":
		err = unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 255)))
	case "link":
		err = os.Symlink("/etc", path)
	}
	if err != nil {
		n.Fatal(err)
	}
}

// M06: every type with every kind of object, and the modes of new objects.
// Items: M06.
func TestTypes(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	good := map[string]string{
		"": "directory file socket pipe character-device block-device nothing", "Directory": "directory", "DirectoryOrCreate": "directory nothing",
		"File": "file", "FileOrCreate": "file nothing", "Socket": "socket", "CharDevice": "character-device", "BlockDevice": "block-device",
	}
	for kind, fits := range good {
		for _, what := range []string{"", "directory", "file", "socket", "pipe", "character device", "block device", "link"} {
			n := newNode(t)
			path := filepath.Join(n.dir, "x")
			n.put(path, what)
			word := strings.ReplaceAll(what, " ", "-")
			if word == "" {
				word = "nothing"
			}
			want := strings.Contains(" "+fits+" ", " "+word+" ")
			err := n.publish(path, kind)
			if (err == nil) != want {
				t.Errorf("type %q, a %s: got %v, want success %v", kind, word, err, want)
			}
			if err != nil && what != "" && what != "link" && !errors.Is(err, hostpath.ErrType) {
				t.Errorf("type %q, a %s: got %v, want ErrType", kind, word, err)
			}
			if err != nil && what != "link" && !strings.Contains(err.Error(), "hostPath type check failed") {
				t.Errorf("type %q, a %s: got %v, want the kubelet's words", kind, word, err)
			}
			st, err := os.Lstat(path)
			made := map[string]os.FileMode{"DirectoryOrCreate": os.ModeDir | 0o755, "FileOrCreate": 0o644}[kind]
			if what == "" && made != 0 && (err != nil || st.Mode() != made) {
				t.Errorf("type %q: made %v, %v, want %v", kind, st, err, made)
			}
			if what == "" && made == 0 && err == nil {
				t.Errorf("type %q: something was made", kind)
			}
		}
	}
}

func TestDirectoriesAboveAreMadeForADirectoryOnly(t *testing.T) {
	n := newNode(t)
	if err := n.publish(n.dir+"/a/b/c", "DirectoryOrCreate"); err != nil {
		t.Error(err)
	}
	for _, dir := range []string{"a", "a/b", "a/b/c"} {
		if st, err := os.Lstat(filepath.Join(n.dir, dir)); err != nil || st.Mode().Perm() != 0o755 {
			t.Errorf("%s: got %v, %v", dir, st, err)
		}
	}
	if err := n.publish(n.dir+"/x/file", "FileOrCreate"); err == nil {
		t.Error("a file in a directory that is not there: got no error")
	}
}

func TestNothingAtThePathIsChangedOrRemoved(t *testing.T) {
	n := newNode(t)
	path := n.dir + "/kept"
	n.put(path, "directory")
	n.put(path+"/file", "file")
	group := int64(4711)
	v := n.volume(path, "Directory")
	m := v.Mounts[pod]
	m.FSGroup = &group
	v.Mounts[pod] = m
	if err := n.driver.Publish(t.Context(), v, pod); err != nil {
		t.Fatal(err)
	}
	if err := n.driver.Unpublish(t.Context(), v, pod); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(path+"/file", &st); err != nil || st.Gid != 0 || st.Mode&0o7777 != 0o600 {
		t.Errorf("got group %d, mode %o, %v", st.Gid, st.Mode, err)
	}
	if _, err := os.Lstat(v.Mounts[pod].Target); !os.IsNotExist(err) {
		t.Errorf("the volume's directory: %v", err)
	}
}

func TestWhatTheOperatorDoesNotListIsDenied(t *testing.T) {
	n := newNode(t)
	beside := n.dir + "-beside"
	n.put(beside, "directory")
	t.Cleanup(func() { os.Remove(beside) })
	for _, path := range []string{"/", "/etc", beside, filepath.Dir(n.dir), n.dir + "/../x", "relative", "", n.dir + "/a\x00b"} {
		err := n.publish(path, "")
		e, ok := errors.AsType[*state.CallError](err)
		if !ok || e.Outcome != state.Refused || !errors.Is(err, hostpath.ErrDenied) {
			t.Errorf("%q: got %v, want a refusal", path, err)
		}
	}
	if err := newDriver(n.layout).Publish(t.Context(), n.volume(n.dir, ""), pod); !errors.Is(err, hostpath.ErrDenied) || !strings.Contains(err.Error(), "--host-path-allow") {
		t.Errorf("by default: got %v, want ErrDenied and the flag", err)
	}
	for _, allow := range []string{"/", n.dir, filepath.Dir(n.dir)} {
		if err := newDriver(n.layout, "/none", allow).Publish(t.Context(), n.volume(n.dir, "Directory"), pod); err != nil {
			t.Errorf("%s allowed: %v", allow, err)
		}
	}
}

// TestAPathWithDotsIsRefused: even a path that stays in an allowed directory; the
// driver makes nothing.
// Items: M07.
func TestAPathWithDotsIsRefused(t *testing.T) {
	n := newNode(t)
	for _, path := range []string{"/x/../a", "/a/..", "/..", "/../" + filepath.Base(n.dir) + "/a", "/a/../../" + filepath.Base(n.dir)} {
		for _, kind := range []string{"", "DirectoryOrCreate", "FileOrCreate", "Directory"} {
			err := n.publish(n.dir+path, kind)
			e, ok := errors.AsType[*state.CallError](err)
			if !ok || e.Outcome != state.Refused || !errors.Is(err, hostpath.ErrDenied) || !strings.Contains(err.Error(), `".."`) {
				t.Errorf("%q of type %q: got %v, want a refusal that says why", path, kind, err)
			}
		}
	}
	if entries, err := os.ReadDir(n.dir); err != nil || len(entries) != 0 {
		t.Errorf("got %v, %v, want nothing made", entries, err)
	}
}

func TestRecordThatHandsOutAnotherPathIsDenied(t *testing.T) {
	n := newNode(t)
	v := n.volume(n.dir, "")
	m := v.Mounts[pod]
	m.HostPath = "/"
	v.Mounts[pod] = m
	if err := n.driver.Publish(t.Context(), v, pod); !errors.Is(err, hostpath.ErrDenied) {
		t.Errorf("got %v, want ErrDenied", err)
	}
}

// C23: the driver does not make a missing allowed directory, as on a disk that is not
// mounted.
// Attacks: C23.
func TestAttackAllowedDirectoryThatIsGoneIsNotMade(t *testing.T) {
	n := newNode(t)
	if err := os.Remove(n.dir); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"", "DirectoryOrCreate", "FileOrCreate"} {
		if err := n.publish(n.dir+"/x", kind); err == nil {
			t.Errorf("type %q: got no error", kind)
		}
	}
	if _, err := os.Lstat(n.dir); !os.IsNotExist(err) {
		t.Errorf("got %v", err)
	}
}

// C23: no link leads out of an allowed directory, and nothing is made behind one.
// Attacks: C23.
func TestAttackLinkDoesNotLeadOut(t *testing.T) {
	n := newNode(t)
	outside := t.TempDir()
	n.put(n.dir+"/inside", "directory")
	links := map[string]string{"absolute": outside, "relative": "../" + filepath.Base(outside), "chain": "absolute", "proc": "/proc/self/root", "dangling": "/nowhere"}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(n.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name := range links {
		for _, kind := range []string{"", "Directory", "DirectoryOrCreate", "FileOrCreate"} {
			for _, path := range []string{name, name + "/x", name + "/x/y"} {
				if err := n.publish(filepath.Join(n.dir, path), kind); !errors.Is(err, unix.ELOOP) {
					t.Errorf("%s, type %q: got %v, want ELOOP", path, kind, err)
				}
			}
		}
	}
	for _, dir := range []string{outside, n.dir + "/inside"} {
		if found, err := os.ReadDir(dir); err != nil || len(found) != 0 {
			t.Errorf("%s: got %v, %v, want nothing", dir, found, err)
		}
	}
}

// C23: a process that swaps a directory and a link while the driver makes the path gets
// nothing made at the link's target.
// Attacks: C23.
func TestAttackSwappedDirectoryIsNotLeft(t *testing.T) {
	n := newNode(t)
	outside := t.TempDir()
	real, link := n.dir+"/real", n.dir+"/link"
	n.put(real, "directory")
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	stop := drivertest.Swap(t, real, link)
	for i := range 3000 {
		for _, kind := range []string{"DirectoryOrCreate", "FileOrCreate"} {
			path := fmt.Sprintf("%s/%s%d", real, kind, i)
			if err := n.publish(path, kind); err != nil && !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOTDIR) {
				t.Fatal(err)
			}
		}
	}
	if swaps := stop(); swaps == 0 {
		t.Error("nothing was swapped")
	}
	if found, err := os.ReadDir(outside); err != nil || len(found) != 0 {
		t.Errorf("%d things were made outside, %v", len(found), err)
	}
}
