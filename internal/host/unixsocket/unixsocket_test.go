package unixsocket_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/host/unixsocket"
)

func TestPathsOfAnyLengthAreConnectedTo(t *testing.T) {
	top, err := os.MkdirTemp("/tmp", "s") // short, whatever TMPDIR is
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	const name = "csi.sock"
	for _, length := range []int{len(top) + 30, unixsocket.MaxPath, unixsocket.MaxPath + 1, unixsocket.MaxPath + 100} {
		dir := filepath.Join(top, strings.Repeat("d", length-len(top)-len(name)-2))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if _, err := unixsocket.Dial(t.Context(), path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("nothing is at a path of %d bytes: %v", len(path), err)
		}
		at, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("unix", filepath.Join("/proc/self/fd", strconv.Itoa(int(at.Fd())), name))
		if err != nil {
			t.Fatal(err)
		}
		c, err := unixsocket.Dial(t.Context(), path)
		if err != nil {
			t.Fatalf("a path of %d bytes: %v", len(path), err)
		}
		if err := errors.Join(c.Close(), l.Close(), at.Close()); err != nil {
			t.Error(err)
		}
	}
}
