package netfs_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/netfs"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/program"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const glusterSource = `{"servers": ["192.0.2.1", "192.0.2.2"], "path": "data"}`

// The contract of all kinds; a bind mount stands in for mount.glusterfs.
//
// Items: M15.
func TestContractOfGlusterFS(t *testing.T) {
	contract(t, netfs.GlusterFS, netfs.GlusterFSCommand, glusterSource)
}

// The exact call: all servers, the volume with a directory of it, and the options.
func TestCommandOfGlusterFS(t *testing.T) {
	const log = "log-level=WARNING,log-file=/var/log/glusterfs/csi-volmgr.log,"
	for config, want := range map[string][]string{
		glusterSource: {"192.0.2.1,192.0.2.2:/data", "/r/kubernetes.io~glusterfs/v", "-o", log + "acl,ro"},
		`{"servers": ["192.0.2.1"], "path": "/data/a/b-1"}`:         {"192.0.2.1:/data/a/b-1", "/r/kubernetes.io~glusterfs/v", "-o", log + "acl,ro"},
		`{"servers": ["2001:db8::1"], "path": "data"}`:              {"2001:db8::1:/data", "/r/kubernetes.io~glusterfs/v", "-o", log + "xlator-option=transport.address-family=inet6,acl,ro"},
		`{"servers": ["192.0.2.1", "2001:db8::1"], "path": "data"}`: {"192.0.2.1,2001:db8::1:/data", "/r/kubernetes.io~glusterfs/v", "-o", log + "acl,ro"},
	} {
		spec := state.Spec{Config: json.RawMessage(config), MountFlags: []string{"acl"}}
		c, err := netfs.GlusterFSCommand(spec, state.Mount{MountSpec: state.MountSpec{ReadOnly: true}}, want[1])
		if err != nil || c.Name != "mount.glusterfs" || !slices.Equal(c.Args, want) || c.Key != want[1] {
			t.Errorf("%s: got %+v, %v, want %q", config, c, err, want)
		}
	}
}

// If mount.glusterfs is not installed, the error names the package.
func TestGlusterHelperThatIsMissing(t *testing.T) {
	c, err := netfs.GlusterFSCommand(state.Spec{Config: json.RawMessage(glusterSource)}, state.Mount{}, "/t")
	if err != nil {
		t.Fatal(err)
	}
	none := program.Runner{Dirs: []string{t.TempDir()}}
	if err := none.Run(t.Context(), c); !errors.Is(err, program.ErrMissing) || !strings.Contains(err.Error(), "glusterfs-client") {
		t.Errorf("got %v", err)
	}
}

// mount.glusterfs is a shell script that quotes nothing: values with spaces or patterns
// do not reach it (C7).
//
// Attacks: C7.
func TestAttackSourcesOfGlusterFS(t *testing.T) {
	source := func(server, path string) string {
		b, err := json.Marshal(map[string]any{"servers": []string{server}, "path": path})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	command := func(config, target string, options ...string) error {
		_, err := netfs.GlusterFSCommand(state.Spec{Config: json.RawMessage(config), MountFlags: options}, state.Mount{}, target)
		return err
	}
	for _, config := range []string{`7`, `{}`, `{"servers": [], "path": "data"}`, source("", "data"), source("host", "data"), source("fe80::1%$(x)", "data")} {
		if err := command(config, "/t"); !errors.Is(err, netfs.ErrSource) {
			t.Errorf("%s: got %v", config, err)
		}
	}
	bad := []string{"", "-o", "a b", "a\n", "a\x00", "$(x)", "`x`", "a;b", "a&b", "a|b", "a>b", "*", "?", "[a]", "a\\b", "'", `"`, "(", "{a}", "!", "#", "ä"}
	for _, word := range bad {
		if err := command(source("192.0.2.1", word), "/t"); !errors.Is(err, netfs.ErrSource) {
			t.Errorf("path %q: got %v", word, err)
		}
		if err := command(glusterSource, "/t", word); !errors.Is(err, netfs.ErrSource) {
			t.Errorf("option %q: got %v", word, err)
		}
	}
	for _, path := range []string{"..", "a/../b", ".", "/", "//a", "a//b", "a/", "a:b", "a,b", "a/-b"} {
		if err := command(source("192.0.2.1", path), "/t"); !errors.Is(err, netfs.ErrSource) {
			t.Errorf("path %q: got %v", path, err)
		}
	}
	for _, option := range []string{"log-file=/etc/cron.d/x", "acl,log-file=/x", "log-file=/var/log/glusterfs/../x", "log-file=x", "log-file=", "remount"} {
		if err := command(glusterSource, "/t", option); !errors.Is(err, netfs.ErrSource) {
			t.Errorf("option %q: got %v", option, err)
		}
	}
	if err := command(glusterSource, "/t", "log-file=/var/log/glusterfs/web.log"); err != nil {
		t.Error(err)
	}
	if err := command(glusterSource, "/a root/t"); !errors.Is(err, netfs.ErrSource) {
		t.Errorf("a target with a space: got %v", err)
	}
}
