package subpath

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// A server with root_squash gives what root makes to an anonymous user, and lets root give nothing
// away. A missing subPath there is made so that the pods' users can write to it.
func TestServerThatMapsRoot(t *testing.T) {
	const anonymous = 65534
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var like unix.Stat_t
	if err := unix.Fstat(int(root.Fd()), &like); err != nil {
		t.Fatal(err)
	}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Setfsuid(anonymous); err != nil {
			made <- err
			return
		}
		made <- makeIn(root, "sub", like)
	}()
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "sub"), &st); err != nil || st.Uid != anonymous || st.Mode&0o777 != 0o777 {
		t.Errorf("made with owner %d and mode %o, %v", st.Uid, st.Mode, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("made %v, %v", left, err)
	}
}
