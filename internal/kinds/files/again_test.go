package files_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/files"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// TestSetUpAgainOverWhatIsThere: after a restart the volume has the same files, also
// those that the pod has open. After a reboot, which leaves the directory without its
// tmpfs, the next publish completes the volume. Either volume follows its object from
// then on, and an interrupted write from before the reboot is gone.
// Items: L07, L08.
func TestSetUpAgainOverWhatIsThere(t *testing.T) {
	for _, kind := range files.Kinds {
		for name, down := range map[string]func(t *testing.T, n *node){
			"restart": func(*testing.T, *node) {},
			"reboot": func(t *testing.T, n *node) {
				if kind != files.ConfigMap { // only a configMap is not on tmpfs
					if err := unix.Unmount(n.target(), 0); err != nil {
						t.Fatal(err)
					}
					return
				}
				if err := os.MkdirAll(filepath.Join(n.target(), "..2001_01_01_00_00_00.000000000", "cut"), 0o755); err != nil {
					t.Fatal(err)
				}
			},
		} {
			t.Run(string(kind)+", "+name, func(t *testing.T) { againOver(t, kind, down) })
		}
	}
}

func againOver(t *testing.T, kind state.DriverName, down func(t *testing.T, n *node)) {
	n := newNode(t, kind, configs[kind])
	files1 := map[string]string{"a": "0644 1", "b": "0644 1", "binary": "0644 \x00\x01\x02"}
	files2 := map[string]string{"a": "0644 2", "binary": "0644 \x00\x01\x02"}
	if kind == files.DownwardAPI {
		files1, files2 = map[string]string{"labels": "0644 app=\"1\""}, map[string]string{"labels": "0644 app=\"2\""}
	}
	n.want(files1)
	was, _ := os.Readlink(filepath.Join(n.target(), "..data"))
	down(t, n)
	_, kept := os.Lstat(filepath.Join(n.target(), was))
	root := n.target()
	for range 5 { // pods/UID/volumes/KIND/NAME
		root = filepath.Dir(root)
	}
	n.driver = newDriver(kind, state.Layout{Root: root}, n.source)
	n.want(files1)
	if is, err := os.Readlink(filepath.Join(n.target(), "..data")); err != nil || kept == nil && is != was {
		t.Errorf("what was there and good is written anew: %s, was %s, %v", is, was, err)
	}
	n.source.put("default/settings", map[string]string{"a": "2"})
	n.source.label("2")
	n.want(files2)
}
