package server

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// After a change of --api-readers the members of the new group reach the socket, although the directory that the
// daemon made is open to the old one. A directory of the operator's stays as it is.
func TestAnotherGroupOfReadersReachesTheSocket(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test gives files to groups: run it as root")
	}
	for _, mode := range []os.FileMode{0o700, 0o755} {
		dir := filepath.Join(t.TempDir(), "run")
		socket := filepath.Join(dir, "api.sock")
		if err := os.Mkdir(dir, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(socket, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, group := range []uint32{4711, 4712} {
			if err := openTo(socket, group); err != nil {
				t.Fatal(err)
			}
			st, err := os.Stat(dir)
			if err != nil {
				t.Fatal(err)
			}
			gid, now := st.Sys().(*syscall.Stat_t).Gid, st.Mode().Perm()
			if mode == 0o755 && (gid != 0 || now != mode) || mode == 0o700 && (gid != group || now != 0o710) {
				t.Errorf("readers %d: the directory of mode %o has mode %o and group %d", group, mode, now, gid)
			}
		}
	}
}
