package mount

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
)

// Ids can be mapped if the kernel supports it for the file system: at its root, a directory, a
// file and a bind of it, by this process and by a helper. They cannot on other file systems,
// nor on a kernel without mount_setattr, nor twice. The attempt leaves nothing behind.
//
// Items: Q09.
func TestWhereIDsCanBeMapped(t *testing.T) {
	needs(t, MountTree)
	dir := scratch(t)
	for _, sub := range []string{"tmpfs", "bind", "mapped"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	k := New(dir)
	tmpfs := filepath.Join(dir, "tmpfs")
	if err := k.Tmpfs(tmpfs, TmpfsOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(tmpfs+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := k.Bind(tmpfs, filepath.Join(dir, "bind"), BindOptions{ReadOnly: true}); err != nil {
		t.Fatal(err)
	}
	mapped := filepath.Join(dir, "mapped")
	bindMapped(t, tmpfs, mapped)
	pool := isolate.New(isolate.Config{Service: Service(), Command: helperCommand})
	t.Cleanup(func() { pool.Close() })
	before, err := k.List(t.Context(), "/")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]Maps{
		tmpfs: {true, "tmpfs"}, tmpfs + "/file": {true, "tmpfs"}, filepath.Join(dir, "bind"): {true, "tmpfs"},
		mapped: {false, "tmpfs"}, "/proc": {false, "proc"}, "/sys": {false, "sysfs"},
	} {
		for name, k := range map[string]*Kernel{"here": k, "away": k.MakeAway(pool)} {
			if got, err := k.MapsIDs(t.Context(), path); err != nil || got != want {
				t.Errorf("%s, %s: %+v, %v; want %+v", path, name, got, err, want)
			}
		}
		if got, err := k.Without(MountTree).MapsIDs(t.Context(), path); err != nil || got.IDs || got.FSType != want.FSType {
			t.Errorf("%s, without mount_setattr: %+v, %v", path, got, err)
		}
	}
	after, err := k.List(t.Context(), "/")
	if err != nil || len(after) != len(before) {
		t.Errorf("%d mounts before, %d after, %v", len(before), len(after), err)
	}
	if _, err := k.MapsIDs(t.Context(), filepath.Join(dir, "none")); err == nil {
		t.Error("nothing is there, and no error")
	}
}

// bindMapped binds a directory with its ids mapped.
func bindMapped(t *testing.T, source, target string) {
	t.Helper()
	ns, err := userNamespace()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	tree, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(tree)
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns.Fd())}); err != nil {
		t.Fatal(err)
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		t.Fatal(err)
	}
}
