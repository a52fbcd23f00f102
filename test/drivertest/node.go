package drivertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// node is a node's root directory with a driver.
type node struct {
	*testing.T
	Subject
	layout  state.Layout
	factory Factory
}

func newNode(t *testing.T, factory Factory) *node {
	t.Helper()
	n := &node{T: t, layout: state.Layout{Root: t.TempDir()}, factory: factory}
	n.restart()
	// Mounts left by a failed check would prevent removal of the directory.
	t.Cleanup(func() { detachBelow(n.layout.Root) })
	return n
}

func (n *node) restart() { n.Subject = n.factory(n.T, n.layout) }

// volume returns the record of a volume whose mount for pod is being made.
func (n *node) volume(pod state.PodUID, name string) state.Volume {
	return state.Volume{
		ID: state.PodVolumeID(n.Kind, pod, name),
		Spec: &state.Spec{
			Driver: n.Kind, Name: name, Builtin: true, Mode: state.Filesystem,
			Config: slices.Clone(n.Config),
		},
		Mounts: map[state.PodUID]state.Mount{pod: {
			Fact: state.Fact{Phase: state.Entering},
			MountSpec: state.MountSpec{
				Pod:    state.Pod{UID: pod, Namespace: "default", Name: string(pod)},
				Names:  []string{name},
				Target: n.layout.BuiltinTarget(n.Kind, pod, name), HostPath: n.HostPath,
			},
		}},
	}
}

func (n *node) publish(v state.Volume, pod state.PodUID) {
	n.Helper()
	if err := n.Driver.Publish(n.Context(), v, pod); err != nil {
		n.Fatalf("publish: %v", err)
	}
}

func (n *node) unpublish(v state.Volume, pod state.PodUID) {
	n.Helper()
	if err := n.Driver.Unpublish(n.Context(), v, pod); err != nil {
		n.Fatalf("unpublish: %v", err)
	}
}

// wantRefused fails the test unless err is a refusal.
func (n *node) wantRefused(what string, err error) {
	n.Helper()
	if e, ok := errors.AsType[*state.CallError](err); !ok || e.Outcome != state.Refused {
		n.Errorf("%s: got %v, want a refusal", what, err)
	}
}

// wantNothing fails the test unless everything of all volumes is gone.
func (n *node) wantNothing() {
	n.Helper()
	for path := range tree(n.T, n.layout.Root) {
		if !slices.Contains([]string{".", "pods", "plugins", "plugins/kubernetes.io", "plugins/" + string(n.Kind)}, path) {
			n.Errorf("%s: is left", path)
		}
	}
	if mounts := mountsBelow(n.layout.Root); len(mounts) != 0 {
		n.Errorf("mounted still: %q", mounts)
	}
}

func (n *node) wantSame(what string, before, after map[string]string) {
	n.Helper()
	if maps.Equal(before, after) {
		return
	}
	for path, was := range before {
		if after[path] != was {
			n.Errorf("%s: %s: got %q, want %q as before", what, path, after[path], was)
		}
	}
	for path, is := range after {
		if _, ok := before[path]; !ok {
			n.Errorf("%s: %s: got %q, want nothing as before", what, path, is)
		}
	}
}

// canary makes a directory outside the node's root, and checks at the end of the test
// that no verb changed it.
func (n *node) canary() string {
	n.Helper()
	dir := n.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "d"), 0o700),
		os.WriteFile(filepath.Join(dir, "d/f"), []byte("canary"), 0o600)); err != nil {
		n.Fatal(err)
	}
	before := tree(n.T, dir)
	n.Cleanup(func() { n.wantSame("canary", before, tree(n.T, dir)) })
	return dir
}

// tree returns the files at and below dir: type, mode, owner, inode and content by
// path.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		what := fmt.Sprintf("%o %d:%d %d:%d", st.Mode, st.Uid, st.Gid, st.Dev, st.Ino)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			what += " " + string(data)
		case unix.S_IFLNK:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			what += " -> " + to
		}
		rel, err := filepath.Rel(dir, path)
		found[rel] = what
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return found
}

// content returns the content of the files that a pod sees at target, by path and
// through links.
func content(t *testing.T, target string) map[string]string {
	t.Helper()
	found := map[string]string{}
	entries, err := os.ReadDir(target)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		path := filepath.Join(target, e.Name())
		if st, err := os.Stat(path); err != nil || st.IsDir() {
			found[e.Name()] = fmt.Sprint(err)
			continue
		}
		data, err := os.ReadFile(path)
		found[e.Name()] = fmt.Sprintf("%s %v", data, err)
	}
	return found
}

// mountsBelow returns the mount points below dir, the last mounted first.
func mountsBelow(dir string) []string {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); strings.HasPrefix(f[4], dir+"/") {
			found = append(found, f[4])
		}
	}
	slices.Reverse(found)
	return found
}

func detachBelow(dir string) {
	for _, m := range mountsBelow(dir) {
		_ = unix.Unmount(m, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
}

// ended returns a canceled context.
func (n *node) ended() context.Context {
	ctx, cancel := context.WithCancel(n.Context())
	cancel()
	return ctx
}

// badConfig is not a valid source of any kind.
var badConfig = json.RawMessage(`{"name": 7, "medium": 7, "secretName": 7, "items": 7, ` +
	`"sources": 7, "type": 7, "path": 7, "server": 7, "reference": 7}`)
