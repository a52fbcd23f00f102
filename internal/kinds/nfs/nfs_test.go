package nfs_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/nfs"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/program"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
)

func TestMain(m *testing.M) { drivertest.Main(m) }

// host stands in for mount.nfs: it records the call and binds a directory, as if it
// were a server's.
type host struct {
	export string
	mu     sync.Mutex
	calls  []program.Command
	err    error
}

func (h *host) run(_ context.Context, c program.Command) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, c)
	if h.err != nil {
		return h.err
	}
	return unix.Mount(h.export, c.Args[1], "", unix.MS_BIND, "")
}

func newDriver(l state.Layout, h *host) *nfs.Driver {
	return nfs.New(nfs.Config{Layout: l, Kernel: mount.New(l.Root), Run: h.run})
}

// After a restart the driver removes a volume with nothing but its record.
//
// Items: M15.
func TestContract(t *testing.T) {
	drivertest.Run(t, func(t *testing.T, l state.Layout) drivertest.Subject {
		h := &host{export: l.Root + "-export"} // the same one after a restart
		if err := os.MkdirAll(h.export, 0o700); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(h.export) })
		return drivertest.Subject{
			Driver: newDriver(l, h), Kind: nfs.Kind, Config: json.RawMessage(`{"server": "filer", "path": "/export"}`),
		}
	})
}

const pod = state.PodUID("7f3c2a10-0000-4000-8000-000000000001")

type node struct {
	*testing.T
	*host
	layout state.Layout
	driver *nfs.Driver
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{T: t, host: &host{export: t.TempDir()}, layout: state.Layout{Root: t.TempDir()}}
	n.driver = newDriver(n.layout, n.host)
	return n
}

func (n *node) volume(server, path string) state.Volume {
	n.Helper()
	config, err := json.Marshal(map[string]string{"server": server, "path": path})
	if err != nil {
		n.Fatal(err)
	}
	return state.Volume{
		Spec: &state.Spec{Driver: nfs.Kind, Name: "share", Builtin: true, Config: config},
		Mounts: map[state.PodUID]state.Mount{pod: {MountSpec: state.MountSpec{
			Pod: state.Pod{UID: pod}, Target: n.layout.BuiltinTarget(nfs.Kind, pod, "share"),
		}}},
	}
}

func (n *node) target() string { return n.layout.BuiltinTarget(nfs.Kind, pod, "share") }

// M10: the exact call for names, IPv4 and IPv6, options, and read-only.
// Items: M10, M16.
func TestCallOfMountNFS(t *testing.T) {
	for _, tc := range []struct {
		server, path string
		flags        []string
		readOnly     bool
		want         []string
	}{
		{"filer.example.com", "/export", nil, false, []string{"filer.example.com:/export", "retry=0"}},
		{"192.0.2.7", "/", []string{"vers=4.2", "hard"}, true, []string{"192.0.2.7:/", "retry=0,vers=4.2,hard,ro"}},
		{"2001:db8::1", "/a b/c", []string{"nfsvers=3,nolock"}, false, []string{"[2001:db8::1]:/a b/c", "retry=0,nfsvers=3,nolock"}},
		{"fe80::1%eth0", "/x", nil, false, []string{"[fe80::1%eth0]:/x", "retry=0"}},
	} {
		n := newNode(t)
		v := n.volume(tc.server, tc.path)
		v.Spec.MountFlags = tc.flags
		m := v.Mounts[pod]
		m.ReadOnly = tc.readOnly
		v.Mounts[pod] = m
		for range 2 { // the second time it is already mounted
			if err := n.driver.Publish(t.Context(), v, pod); err != nil {
				t.Fatal(err)
			}
		}
		if want := []string{tc.want[0], n.target(), "-o", tc.want[1]}; len(n.calls) != 1 || n.calls[0].Name != "mount.nfs" || !slices.Equal(n.calls[0].Args, want) {
			t.Errorf("got %+v, want one call with %q", n.calls, want)
		}
		if err := n.driver.Unpublish(t.Context(), v, pod); err != nil {
			t.Error(err)
		}
	}
}

// C7, C12: the driver refuses what is no server, path or option before it runs
// anything.
//
// Attacks: C7, C12.
func TestAttackStringsOfASourceAreRefused(t *testing.T) {
	n := newNode(t)
	bad := func(v state.Volume, what string) {
		t.Helper()
		err := n.driver.Publish(t.Context(), v, pod)
		e, ok := errors.AsType[*state.CallError](err)
		if !ok || e.Outcome != state.Refused || !errors.Is(err, nfs.ErrSource) {
			t.Errorf("%s: got %v, want a refusal", what, err)
		}
	}
	for _, server := range []string{"", "-o", "a b", "a;id", "$(id)", "a:b", "a/b", "a\nb", "a\x00", "[::1]", "ä"} {
		bad(n.volume(server, "/"), "server "+server)
	}
	for _, path := range []string{"", "x", "../x", "/a/../../b", "/a\nb", "/a\x00"} {
		bad(n.volume("filer", path), "path "+path)
	}
	for _, option := range []string{"", "a b", "vers=4\n", "\x00", `sloppy,x="a`} { // the last would swallow "ro"
		v := n.volume("filer", "/")
		v.Spec.MountFlags = []string{"hard", option}
		bad(v, "option "+option)
	}
	if len(n.calls) != 0 {
		t.Errorf("run: %+v", n.calls)
	}
	if _, err := os.Lstat(n.target()); !os.IsNotExist(err) {
		t.Errorf("target: %v", err)
	}
}

// Items: M10.
func TestFailedMountLeavesNothingMountedAndCanBeRepeated(t *testing.T) {
	n := newNode(t)
	v := n.volume("filer", "/export")
	n.err = errors.New("mount.nfs: exit status 32: access denied by server")
	if err := n.driver.Publish(t.Context(), v, pod); !errors.Is(err, n.err) || !strings.Contains(err.Error(), "filer:/export") {
		t.Errorf("got %v", err)
	}
	n.err = nil
	if err := n.driver.Publish(t.Context(), v, pod); err != nil {
		t.Error(err)
	}
	if err := n.driver.Unpublish(t.Context(), v, pod); err != nil {
		t.Error(err)
	}
}

func TestWithoutMountNFSThePackageIsNamed(t *testing.T) {
	n := newNode(t)
	d := nfs.New(nfs.Config{Layout: n.layout, Kernel: mount.New(n.layout.Root), Run: (&program.Runner{Dirs: []string{t.TempDir()}}).Run})
	if err := d.Publish(t.Context(), n.volume("filer", "/"), pod); !errors.Is(err, program.ErrMissing) || !strings.Contains(err.Error(), "nfs-common") {
		t.Errorf("got %v", err)
	}
}

// Unpublish does not unmount a volume in use, however long it takes.
func TestVolumeInUseStaysMounted(t *testing.T) {
	n := newNode(t)
	v := n.volume("filer", "/export")
	if err := n.driver.Publish(t.Context(), v, pod); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(n.target(), "open"))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := errors.AsType[*mount.BusyError](n.driver.Unpublish(t.Context(), v, pod)); !ok {
		t.Error("got no BusyError")
	}
	f.Close()
	if err := n.driver.Unpublish(t.Context(), v, pod); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(n.export, "open")); err != nil {
		t.Errorf("the server's file: %v", err)
	}
}
