package payload_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/payload"
)

// A pod with write access to the volume swaps the driver's entries with links to a tree
// outside while versions are written. That tree must not change, whatever becomes of
// the volume.
// Attacks: C3.
func TestAttackSwapsWhileVersionsAreWritten(t *testing.T) {
	canary := t.TempDir()
	if err := errors.Join(os.WriteFile(canary+"/a", []byte("canary"), 0o600), os.Mkdir(canary+"/d", 0o700), os.WriteFile(canary+"/d/b", []byte("canary"), 0o600)); err != nil {
		t.Fatal(err)
	}
	v := newVolume(t)
	v.must(payload.Files{"a": text("0"), "d/b": text("0")}, true)
	stop := swapEntries(t, v.path, canary)
	gid := int64(4711)
	written := 0
	for i := 0; i < 100 || written == 0 && i < 100_000; i++ {
		if _, err := v.write(t.Context(), payload.Files{"a": text(fmt.Sprint(i)), "d/b": text(fmt.Sprint(i))}, &gid); err == nil {
			written++
		}
	}
	if swaps := stop(); swaps == 0 || written == 0 {
		t.Errorf("%d swaps, %d versions: nothing was raced", swaps, written)
	}
	for _, p := range []string{"", "/a", "/d", "/d/b"} {
		var st unix.Stat_t
		if err := unix.Lstat(canary+p, &st); err != nil || st.Gid != 0 || st.Mode&0o077 != 0 && p != "" {
			t.Errorf("canary%s: group %d, mode %o, %v", p, st.Gid, st.Mode, err)
		}
	}
	for _, p := range []string{"/a", "/d/b"} {
		if data, err := os.ReadFile(canary + p); err != nil || string(data) != "canary" {
			t.Errorf("canary%s: got %q, %v", p, data, err)
		}
	}
	if entries, err := os.ReadDir(canary); err != nil || len(entries) != 2 {
		t.Errorf("canary: got %v, %v", entries, err)
	}
}

// swapEntries exchanges every entry of the volume and of its sets with a link to
// canary, one after the other, until stop is called.
func swapEntries(t *testing.T, volume, canary string) (stop func() int) {
	t.Helper()
	evil := filepath.Join(volume, "evil")
	if err := os.Symlink(canary, evil); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	swaps := 0
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			found, _ := filepath.Glob(volume + "/..*")
			deeper, _ := filepath.Glob(volume + "/..*/*")
			for _, path := range append(found, deeper...) {
				if filepath.Base(path) == ".." {
					continue
				}
				// Two exchanges put the entry back in its place.
				for range 2 {
					if unix.Renameat2(unix.AT_FDCWD, evil, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE) == nil {
						swaps++
					}
				}
			}
		}
	})
	return func() int {
		close(done)
		wg.Wait()
		return swaps
	}
}
