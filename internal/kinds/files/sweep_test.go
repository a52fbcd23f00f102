package files_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fsnotify/fsnotify"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/files"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// versions lists the version directories of a volume.
func versions(t *testing.T, target string) []string {
	t.Helper()
	entries, err := os.ReadDir(target)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..2") {
			names = append(names, e.Name())
		}
	}
	return names
}

// TestEarlierVersionsGo: only the current version stays, without any further change,
// both in a volume that changes while the driver runs and in one that a crash left in
// the middle of a write.
// Items: L04, L15.
func TestEarlierVersionsGo(t *testing.T) {
	n := newNode(t, files.ConfigMap, `{"name": "settings"}`)
	if err := n.publish(); err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{"..2001_01_01_00_00_00.000000000", "..2999_01_01_00_00_00.000000000"} {
		if err := os.MkdirAll(filepath.Join(n.target(), left, "x"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("nowhere", filepath.Join(n.target(), "..data_tmp")); err != nil {
		t.Fatal(err)
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Add(n.target()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.driver.Run(ctx) }()
	waitVersions(t, w, n.target())
	n.source.put("default/settings", map[string]string{"a": "2"})
	if err := n.publish(); err != nil {
		t.Fatal(err)
	}
	if got := versions(t, n.target()); len(got) != 2 {
		t.Errorf("just after a change: %q, want the version before too", got)
	}
	waitVersions(t, w, n.target())
	if to, err := os.Readlink(filepath.Join(n.target(), "..data")); err != nil || !slices.Equal(versions(t, n.target()), []string{to}) {
		t.Errorf("left is %q, current %q, %v", versions(t, n.target()), to, err)
	}
	if _, err := os.Lstat(filepath.Join(n.target(), "..data_tmp")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("..data_tmp: %v", err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// waitVersions waits until exactly one version is left.
func waitVersions(t *testing.T, w *fsnotify.Watcher, target string) {
	t.Helper()
	for len(versions(t, target)) != 1 {
		select {
		case <-w.Events:
		case err := <-w.Errors:
			t.Fatal(err)
		case <-t.Context().Done():
			t.Fatal("they never went")
		}
	}
}

// Items: L13.
func TestVolumesMountedInThisOneHaveTheirDirectories(t *testing.T) {
	for _, kind := range files.Kinds {
		n := newNode(t, kind, configs[kind])
		n.source.mount("default/pod", "conf", "/etc/app", "other", "/etc/app/sub/dir")
		v := n.volume.Mounts[pod]
		v.Names = []string{"conf"}
		n.volume.Mounts = map[state.PodUID]state.Mount{pod: v}
		if err := n.publish(); err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(filepath.Join(n.target(), "sub/dir")); err != nil || !st.IsDir() {
			t.Errorf("%s: %v, %v", kind, st, err)
		}
	}
}
