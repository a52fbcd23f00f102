// Package disktest provides a node with disks for the tests of kinds on block devices:
// a sysfs of plain files, device nodes of real loop devices, and a record of every
// program that was run.
package disktest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/disk"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/program"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
)

// Node is the node. Its tests must run under drivertest.Main.
type Node struct {
	*testing.T
	// Sys and Dev replace /sys and /dev.
	Sys, Dev string
	Layout   state.Layout
	// Programs replace the programs of the same name; other programs really run.
	Programs map[string]func(args []string) error

	mu    sync.Mutex
	calls []string
}

// New returns a node without disks.
func New(t *testing.T) *Node {
	t.Helper()
	n := &Node{
		T: t, Sys: t.TempDir(), Dev: t.TempDir(), Layout: state.Layout{Root: t.TempDir()},
		Programs: map[string]func([]string) error{},
	}
	// Device nodes work on a tmpfs, whatever file system the temporary directory is on.
	if err := unix.Mount("tmpfs", n.Dev, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(n.Dev, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	// Mounts left by a test would prevent removal of the directories.
	t.Cleanup(func() {
		staged, err := filepath.Glob(filepath.Join(n.Layout.Plugins(), "*", "*", "*", "globalmount"))
		if err != nil {
			t.Error(err)
		}
		for _, path := range staged {
			_ = unix.Unmount(path, unix.MNT_DETACH) // most are not mounted
		}
	})
	return n
}

// Stager returns a disk.Stager for the node.
func (n *Node) Stager() disk.Stager {
	return disk.Stager{
		Layout: n.Layout, Kernel: mount.New(n.Layout.Root),
		Host: disk.Host{Sys: n.Sys, Dev: n.Dev, Run: n.run},
	}
}

func (n *Node) run(ctx context.Context, c program.Command) error {
	n.mu.Lock()
	n.calls = append(n.calls, strings.ReplaceAll(strings.Join(append([]string{c.Name}, c.Args...), " "), n.Dev, "/dev"))
	n.mu.Unlock()
	if f, ok := n.Programs[c.Name]; ok {
		return f(c.Args)
	}
	return new(program.Runner).Run(ctx, c)
}

// Run runs a program without recording it.
func (n *Node) Run(name string, args ...string) error {
	return new(program.Runner).Run(n.Context(), program.Command{Name: name, Args: args})
}

// Calls returns the programs that ran since the last call of Calls, one line each.
func (n *Node) Calls() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	calls := n.calls
	n.calls = nil
	return calls
}

// Disk adds a blank disk that reports wwid, with a path for each of the names. It
// returns the real device's path.
func (n *Node) Disk(wwid string, names ...string) string {
	n.Helper()
	device := drivertest.Device(n.T, "")
	n.Alias(device, wwid, names...)
	return device
}

// Alias adds names for a real device.
func (n *Node) Alias(device, wwid string, names ...string) {
	n.Helper()
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil {
		n.Fatal(err)
	}
	for _, name := range names {
		n.Set(fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)), "block", name, "dev")
		n.Set("32768", "block", name, "size")
		n.Set(wwid, "block", name, "device", "wwid")
		n.Set("", "block", name, "device", "delete")
		n.Set("", "block", name, "device", "rescan")
		if err := unix.Mknod(filepath.Join(n.Dev, name), unix.S_IFBLK|0o600, int(st.Rdev)); err != nil && err != unix.EEXIST {
			n.Fatal(err)
		}
	}
}

// Gathered makes a multipath map over the paths, on their device.
func (n *Node) Gathered(device, dm, name string, paths ...string) {
	n.Helper()
	n.Alias(device, "", dm)
	n.Set("mpath-"+name, "block", dm, "dm", "uuid")
	n.Set(name, "block", dm, "dm", "name")
	for _, path := range paths {
		n.Set("", "block", path, "holders", dm)
	}
}

// Set writes a sysfs file.
func (n *Node) Set(value string, elems ...string) {
	n.Helper()
	path := filepath.Join(append([]string{n.Sys}, elems...)...)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		n.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(value+"\n"), 0o600); err != nil {
		n.Fatal(err)
	}
}

// Attribute returns the content of a sysfs file.
func (n *Node) Attribute(elems ...string) string {
	n.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{n.Sys}, elems...)...))
	if err != nil {
		n.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// Volume returns the record of a staged kind's volume that the pods use.
func (n *Node) Volume(kind state.DriverName, name, config string, pods ...state.PodUID) state.Volume {
	id := state.SharedID(kind, name)
	v := state.Volume{
		ID: id, Needs: state.Needs{Stage: true}, Stage: state.Fact{Phase: state.Entering},
		Spec: &state.Spec{
			Driver: kind, Name: name, Builtin: true, Mode: state.Filesystem, Config: []byte(config),
			StagePath: n.Layout.BuiltinStagePath(kind, id),
		},
		Mounts: map[state.PodUID]state.Mount{},
	}
	for _, uid := range pods {
		v.Mounts[uid] = state.Mount{MountSpec: state.MountSpec{
			Pod:    state.Pod{UID: uid},
			Target: n.Layout.BuiltinTarget(kind, uid, name),
		}}
	}
	return v
}

// WantLabel checks that a volume is staged with its SELinux label: a kernel without
// SELinux refuses the mount with the option, and mounts it without the label.
func (n *Node) WantLabel(stage func(state.Volume) error, v state.Volume) {
	n.Helper()
	var st unix.Statfs_t
	if unix.Statfs("/sys/fs/selinux", &st) == nil && uint32(st.Type) == unix.SELINUX_MAGIC {
		n.Skip("this kernel has SELinux; test/vm shows there what a label does")
	}
	spec := *v.Spec
	spec.SELinuxLabel = "system_u:object_r:container_file_t:s0:c1,c2"
	labelled := v
	labelled.Spec = &spec
	if err := stage(labelled); !errors.Is(err, unix.EINVAL) {
		n.Errorf("with a label: %v, want EINVAL", err)
	}
	if err := stage(v); err != nil {
		n.Errorf("without one: %v", err)
	}
}
