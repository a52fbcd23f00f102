package fsgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func TestADirectoryIsGivenItsOwner(t *testing.T) {
	root, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	dir := filepath.Join(root.Name(), "vol")
	inside := filepath.Join(dir, "file")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(inside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	g := Giver{Root: root}
	for name, tc := range map[string]struct {
		o        state.Owner
		uid, gid uint32
		mode     uint32
	}{
		"user, group, mode": {state.Owner{UID: new(999), GID: new(998), Mode: new(fs.FileMode(0o2770))}, 999, 998, 0o2770},
		"nothing":           {state.Owner{}, 999, 998, 0o2770},
		"group alone":       {state.Owner{GID: new(0)}, 999, 0, 0o2770}, // a change of the owner clears the setgid bit
		"mode alone":        {state.Owner{Mode: new(fs.FileMode(0o1700))}, 999, 0, 0o1700},
	} {
		if err := os.Chown(dir, 999, 998); err != nil {
			t.Fatal(err)
		}
		if err := unix.Chmod(dir, 0o2770); err != nil {
			t.Fatal(err)
		}
		if name == "mode alone" {
			if err := os.Chown(dir, 999, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.Give(t.Context(), dir, tc.o); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil || st.Uid != tc.uid || st.Gid != tc.gid || st.Mode&0o7777 != tc.mode {
			t.Errorf("%s: user %d, group %d, mode %o, %v", name, st.Uid, st.Gid, st.Mode&0o7777, err)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(inside, &st); err != nil || st.Uid != 0 || st.Mode&0o777 != 0o600 {
		t.Errorf("what is inside has changed: user %d, mode %o, %v", st.Uid, st.Mode&0o777, err)
	}
}

// Whatever a driver or a container has made of the path, no other directory is given away.
func TestNoLinkLeadsToAnotherDirectory(t *testing.T) {
	root, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	elsewhere := t.TempDir()
	link := filepath.Join(root.Name(), "vol")
	if err := os.Symlink(elsewhere, link); err != nil {
		t.Fatal(err)
	}
	g, o := Giver{Root: root}, state.Owner{UID: new(999)}
	if err := g.Give(t.Context(), link, o); !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOTDIR) &&
		!errors.Is(err, unix.EXDEV) {
		t.Errorf("through a link: %v", err)
	}
	if err := g.Give(t.Context(), filepath.Join(root.Name(), "..", filepath.Base(filepath.Dir(elsewhere))), o); err == nil {
		t.Error("a path above the root is taken")
	}
	var st unix.Stat_t
	if err := unix.Stat(elsewhere, &st); err != nil || st.Uid != 0 {
		t.Errorf("user %d, %v", st.Uid, err)
	}
}
