package netfs_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/netfs"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/program"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
)

func TestMain(m *testing.M) { drivertest.Main(m) }

const source = `{"monitors": ["192.0.2.1:6789", "mon-2"], "path": "/data", "user": "web", "secretFile": "/etc/ceph/web.secret"}`

// contract runs the contract of all kinds for a kind of this package, with a bind mount
// instead of its program.
func contract(t *testing.T, kind state.DriverName, command func(state.Spec, state.Mount, string) (program.Command, error), config string) {
	drivertest.Run(t, func(t *testing.T, l state.Layout) drivertest.Subject {
		export := l.Root + "-export" // the same one after a restart
		if err := os.MkdirAll(export, 0o700); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(export) })
		run := func(_ context.Context, c program.Command) error {
			return unix.Mount(export, c.Args[1], "", unix.MS_BIND, "")
		}
		return drivertest.Subject{
			Driver: netfs.New(netfs.Config{Kind: kind, Layout: l, Kernel: mount.New(l.Root), Run: run, Command: command}),
			Kind:   kind, Config: json.RawMessage(config),
		}
	})
}

// After a restart the driver removes a volume with nothing but its record; a bind mount
// stands in for mount.ceph.
//
// Items: M15.
func TestContractOfCephFS(t *testing.T) { contract(t, netfs.CephFS, netfs.CephFSCommand, source) }

// The exact call: the secret is in its file and not on the command line.
func TestCommandOfCephFS(t *testing.T) {
	for config, want := range map[string][]string{
		source:                  {"192.0.2.1:6789,mon-2:/data", "/t", "-o", "name=web,secretfile=/etc/ceph/web.secret,noatime,ro"},
		`{"monitors": ["mon"]}`: {"mon:/", "/t", "-o", "name=admin,secretfile=/etc/ceph/user.secret,noatime,ro"},
		`{"monitors": ["[2001:db8::1]:6789", "mon:3300"]}`: {"[2001:db8::1]:6789,mon:3300:/", "/t", "-o", "name=admin,secretfile=/etc/ceph/user.secret,noatime,ro"},
	} {
		spec := state.Spec{Config: json.RawMessage(config), MountFlags: []string{"noatime"}}
		c, err := netfs.CephFSCommand(spec, state.Mount{MountSpec: state.MountSpec{ReadOnly: true}}, "/t")
		if err != nil || c.Name != "mount.ceph" || !slices.Equal(c.Args, want) {
			t.Errorf("%s: got %q, %v, want %q", config, c.Args, err, want)
		}
	}
}

// If mount.ceph is not installed, the error names the package.
func TestHelperThatIsMissing(t *testing.T) {
	c, err := netfs.CephFSCommand(state.Spec{Config: json.RawMessage(source)}, state.Mount{}, "/t")
	if err != nil {
		t.Fatal(err)
	}
	none := program.Runner{Dirs: []string{t.TempDir()}}
	if err := none.Run(t.Context(), c); !errors.Is(err, program.ErrMissing) || !strings.Contains(err.Error(), "ceph-common") {
		t.Errorf("got %v", err)
	}
}

// No value of a source becomes more than one argument or option (C7).
//
// Attacks: C7.
func TestAttackSourcesOfCephFS(t *testing.T) {
	for _, config := range []string{
		`{}`, `7`, `{"monitors": []}`, `{"monitors": [""]}`, `{"monitors": ["-o"]}`, `{"monitors": ["a b"]}`, `{"monitors": ["a;b"]}`, `{"monitors": ["a,b"]}`,
		`{"monitors": ["a:0"]}`, `{"monitors": ["a:x"]}`, `{"monitors": ["a"], "path": "x"}`, `{"monitors": ["a"], "path": "/../x"}`, `{"monitors": ["a"], "path": "/x,suid"}`,
		`{"monitors": ["a"], "user": "a,suid"}`, `{"monitors": ["a"], "user": "-x"}`, `{"monitors": ["a"], "user": "$(x)"}`,
		`{"monitors": ["a"], "secretFile": "x"}`, `{"monitors": ["a"], "secretFile": "/x,suid"}`, `{"monitors": ["a"], "secretFile": "/x\n"}`,
	} {
		if c, err := netfs.CephFSCommand(state.Spec{Config: json.RawMessage(config)}, state.Mount{}, "/t"); !errors.Is(err, netfs.ErrSource) {
			t.Errorf("%s: got %q, %v", config, c.Args, err)
		}
	}
	for _, option := range []string{"", "a b", "a\n", "conf=/x", "noatime,conf=/x", "secretfile=/x", "bind", "rw,remount"} {
		if _, err := netfs.CephFSCommand(state.Spec{Config: json.RawMessage(source), MountFlags: []string{option}}, state.Mount{}, "/t"); !errors.Is(err, netfs.ErrSource) {
			t.Errorf("option %q: got %v", option, err)
		}
	}
}

// Users who may only read see why a volume waits: a message about a wrong option has its key, since its value may be a
// password.
func TestMountOptionsAreNotInMessages(t *testing.T) {
	refused := 0
	for _, option := range []string{"secret=CANARY x", "secret=\"CANARY", "secret=CANARY$"} {
		for config, command := range map[string]func(state.Spec, state.Mount, string) (program.Command, error){
			source: netfs.CephFSCommand, glusterSource: netfs.GlusterFSCommand,
		} {
			_, err := command(state.Spec{Config: json.RawMessage(config), MountFlags: []string{option}}, state.Mount{}, "/t")
			if err == nil {
				continue // mount.ceph takes a $
			}
			refused++
			if !errors.Is(err, netfs.ErrSource) || !strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "CANARY") {
				t.Errorf("%s: %v", option, err)
			}
		}
	}
	if refused != 5 {
		t.Errorf("%d options are refused, want 5", refused)
	}
}
