package wire

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Only if the root is on a shared mount do drivers in containers see the mounts below it, and this process theirs. If
// it is not, the daemon says so at its start. docs/reference/paths.md says what is needed.
// Items: N-07, N09.
func TestARootThatIsNotSharedIsTold(t *testing.T) {
	for name, tc := range map[string]struct {
		flags uintptr
		told  bool
	}{
		"private": {unix.MS_PRIVATE, true},
		"shared":  {unix.MS_SHARED, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := dirs(t)
			var log bytes.Buffer
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
			if err := os.MkdirAll(c.Root, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mount(c.Root, c.Root, "", unix.MS_BIND, ""); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Unmount(c.Root, unix.MNT_DETACH) })
			if err := unix.Mount("", c.Root, "", tc.flags, ""); err != nil {
				t.Fatal(err)
			}
			n, stop := start(t, c)
			if err := n.manager.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
			stop()
			if got := strings.Contains(log.String(), "root directory is not on a shared mount"); got != tc.told {
				t.Errorf("told: %v, want %v:\n%s", got, tc.told, log.String())
			}
		})
	}
}
