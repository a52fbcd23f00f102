package mount

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// C21: names that the mount table escapes, or that look like its own notes. Unmounting one
// of them must not unmount another.
// Attacks: C21.
func TestAttackNamesThatTheMountTableEscapes(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		names := []string{
			"a", "a (deleted)", `a\040(deleted)`, `a\134040(deleted)`, "a\n1 2 0:3 tmpfs rw", "a\tb", `a\`, "\xc3\xa4\xff",
			strings.Repeat("n", 255), "-", "--", "a b", "#", `"`,
		}
		for _, name := range names {
			must(t, k.Tmpfs(mkdir(t, dir, name), TmpfsOptions{}))
		}
		for i, name := range names {
			must(t, k.Unmount(t.Context(), dir+"/"+name))
			if look(t, k, dir+"/"+name).Mounted {
				t.Errorf("%q: is mounted still", name)
			}
			for _, other := range names[i+1:] {
				if !look(t, k, dir+"/"+other).Mounted {
					t.Fatalf("unmount of %q took the mount of %q", name, other)
				}
			}
		}
	})
}

// C2: the source of a bind is swapped with a link during the bind; the mount never shows
// what the link leads to.
// Attacks: C2.
func TestAttackBindOfASwappedSource(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		outside, volume, target := mkdir(t, dir, "outside"), mkdir(t, dir, "volume"), mkdir(t, dir, "target")
		write(t, mkdir(t, outside, "sub")+"/canary", "")
		mkdir(t, volume, "real", "sub")
		link(t, outside, volume+"/link")
		done, swapped := make(chan struct{}), make(chan int)
		go func() {
			n := 0
			for {
				select {
				case <-done:
					swapped <- n
					return
				default:
				}
				if unix.Renameat2(unix.AT_FDCWD, volume+"/real", unix.AT_FDCWD, volume+"/link", unix.RENAME_EXCHANGE) == nil {
					n++
				}
			}
		}()
		// At least this many rounds; more until both names were bound, which may take
		// longer if the two goroutines run in lockstep.
		const rounds, most = 150, 100_000
		bound, refused := 0, 0
		for i := 0; i < rounds || i < most && (bound == 0 || refused == 0); i++ {
			for _, source := range []string{volume + "/real", volume + "/real/sub"} {
				err := k.Bind(source, target, BindOptions{})
				switch {
				case err == nil:
					bound++
				case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR):
					refused++
				default:
					t.Errorf("bind: %v", err)
				}
				if exists(target+"/canary") || exists(target+"/sub/canary") {
					t.Fatal("what the link leads to is mounted")
				}
				must(t, k.Unmount(t.Context(), target))
			}
		}
		close(done)
		if n := <-swapped; n == 0 || bound == 0 || refused == 0 {
			t.Errorf("%d swaps, %d binds, %d refused: nothing was raced", n, bound, refused)
		}
	})
}
