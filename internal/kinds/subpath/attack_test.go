package subpath_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
)

var (
	raceBinds = flag.Int("race-binds", 300, "how many subPaths are bound during the exchange race")
	raceTime  = flag.Duration("race-time", 0, "how long the exchange race goes on at least")
)

// canary makes a tree outside of every volume and returns its path. When the test ends,
// it checks that the tree is unchanged.
func (n *node) canary() string {
	n.Helper()
	dir := n.TempDir()
	n.must(errors.Join(os.Chmod(dir, 0o700), os.Mkdir(dir+"/d", 0o700), os.WriteFile(dir+"/d/f", []byte("canary"), 0o600)))
	n.Cleanup(func() {
		for _, p := range []string{"", "/d", "/d/f"} {
			if st := n.stat(dir + p); st.Uid != 0 || st.Mode&0o077 != 0 {
				n.Errorf("canary%s: mode %o of %d", p, st.Mode, st.Uid)
			}
		}
		for _, p := range []string{"", "/d"} {
			if entries, err := os.ReadDir(dir + p); err != nil || len(entries) != 1 {
				n.Errorf("canary%s: has %v, %v", p, entries, err)
			}
		}
	})
	return dir
}

// No link leads out of the volume, no matter who made it and where in the path it is.
// Attacks: C1.
// Items: N02.
// Scenarios: U-147, U-148, U-149.
func TestAttackLinksThatLeadOut(t *testing.T) {
	n := newNode(t)
	canary := n.canary()
	others := n.layout.BuiltinTarget("kubernetes.io/empty-dir", "other-pod", "data")
	n.must(os.MkdirAll(others, 0o755))
	for name, to := range map[string]string{
		"root": "/", "etc": "/etc", "up": "../../..", "proc": "/proc/self/root", "cwd": "/proc/self/cwd", "fd": "/proc/self/fd",
		"canary": canary, "file": canary + "/d/f", "self": n.volume, "others": others, "pods": "../../../..",
		"chain": "chain2", "chain2": "root", "loop": "loop", "deep": "d/../../../out", "dangling": canary + "/none",
	} {
		n.must(os.Symlink(to, filepath.Join(n.volume, name)))
		for _, path := range []string{name, name + "/", name + "/d", name + "/new", name + "/self/root", "./" + name} {
			at, err := n.binder.Bind(t.Context(), n.request(path))
			if err == nil {
				t.Errorf("subPath %q over a link to %q: bound at %s", path, to, at)
			}
		}
	}
	for _, path := range []string{"..", "../x", "a/../../x", "/etc", "/", "", "a\x00b", "d/../.."} {
		if _, err := n.binder.Bind(t.Context(), n.request(path)); !errors.Is(err, mount.ErrEscapes) {
			t.Errorf("subPath %q: got %v, want ErrEscapes", path, err)
		}
	}
	if mounts := n.mounts(); len(mounts) != 0 {
		t.Errorf("mounts: %q, want none", mounts)
	}
}

// The binder follows links that stay in the volume: the files of a configMap are such
// links.
// Attacks: C4.
// Items: N02.
func TestAttackLinksWithinTheVolumeAreLegal(t *testing.T) {
	n := newNode(t)
	n.must(os.MkdirAll(n.volume+"/..2026_01_02_15_04_05.123456789/sub", 0o755))
	n.must(os.WriteFile(n.volume+"/..2026_01_02_15_04_05.123456789/key", []byte("v"), 0o644))
	n.must(os.WriteFile(n.volume+"/..2026_01_02_15_04_05.123456789/sub/key", []byte("v"), 0o644))
	n.must(os.MkdirAll(n.volume+"/a/b", 0o755))
	for name, to := range map[string]string{
		"..data": "..2026_01_02_15_04_05.123456789", "key": "..data/key", "sub": "..data/sub",
		"a/up": "../key", "a/b/up": "../../a", "chain": "chain2", "chain2": "a/b/up", "current": "a",
	} {
		n.must(os.Symlink(to, filepath.Join(n.volume, name)))
	}
	for i, path := range []string{"key", "sub", "sub/key", "..data/key", "a/up", "a/b/up/b", "chain", "current/made"} {
		r := n.request(path)
		r.Index = i
		at, err := n.binder.Bind(t.Context(), r)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		n.wantSame(at, filepath.Join(n.volume, path))
	}
}

// The volume's owner exchanges directories with links while the binder binds subPaths:
// nothing outside is ever mounted, made or given away.
// Attacks: C2.
// Items: N02.
func TestAttackExchangeRace(t *testing.T) {
	n := newNode(t)
	canary := n.canary()
	n.must(os.Chown(n.volume, 1000, 1000))
	n.must(os.MkdirAll(n.volume+"/a/b/c", 0o755))
	done := make(chan struct{})
	var wg sync.WaitGroup
	exchanges := 0
	for i, at := range []string{"a", "a/b", "a/b/c"} {
		evil := filepath.Join(n.volume, fmt.Sprintf("evil-%d", i))
		n.must(os.Symlink(canary+"/d", evil))
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if unix.Renameat2(unix.AT_FDCWD, evil, unix.AT_FDCWD, filepath.Join(n.volume, at), unix.RENAME_EXCHANGE) == nil && i == 0 {
					exchanges++
				}
			}
		})
	}
	volume := n.stat(n.volume)
	bound, refused := 0, 0
	for end, i := time.Now().Add(*raceTime), 0; i < *raceBinds || time.Now().Before(end); i++ {
		at, err := n.binder.Bind(t.Context(), n.request([]string{"a/b/c", "a/b/c/new", "a"}[i%3]))
		if err != nil {
			refused++
			continue
		}
		bound++
		if st := n.stat(at); st.Dev == volume.Dev && inside(t, canary, st) {
			t.Fatalf("bind %d: the canary is mounted", i)
		}
		entries, err := n.kernel.List(t.Context(), at)
		n.must(err)
		for _, e := range entries {
			if within, err := filepath.Rel(canary, e.Root); err == nil && filepath.IsLocal(within) {
				t.Fatalf("bind %d: %s is mounted", i, e.Root)
			}
		}
		n.remove()
	}
	close(done)
	wg.Wait()
	t.Logf("%d bound, %d refused, %d exchanges of the first element", bound, refused, exchanges)
	if exchanges == 0 {
		t.Error("nothing was raced")
	}
}

// inside reports whether st is the canary or a file in it.
func inside(t *testing.T, canary string, st unix.Stat_t) bool {
	t.Helper()
	for _, p := range []string{"", "/d", "/d/f"} {
		var c unix.Stat_t
		if err := unix.Stat(canary+p, &c); err != nil {
			t.Fatal(err)
		}
		if c.Dev == st.Dev && c.Ino == st.Ino {
			return true
		}
	}
	return false
}
