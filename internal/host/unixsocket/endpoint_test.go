package unixsocket_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/unixsocket"
)

// Items: N-01.
func TestEndpointIsThePathOfAUnixSocket(t *testing.T) {
	for endpoint, want := range map[string]string{
		"/a/b.sock": "/a/b.sock", "unix:///a//b.sock": "/a/b.sock", "unix:/a/b.sock": "/a/b.sock", "/a/b": "/a/b",
		"tcp://127.0.0.1:1": "", "dns:///x": "", "csi.sock": "", "unix://csi.sock": "", "": "", "/a\x00b": "", "unix-abstract:x": "",
	} {
		got, err := unixsocket.EndpointPath(endpoint)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v; want %q", endpoint, got, err, want)
		}
	}
}

// An endpoint may come from a driver's answer and be of any length.
func TestErrorOfAnEndpointIsShort(t *testing.T) {
	_, err := unixsocket.EndpointPath(strings.Repeat("x", 1<<20))
	if err == nil || len(err.Error()) > 400 {
		t.Errorf("an error of %d bytes, want at most 400", len(err.Error()))
	}
}

func TestIdentityIsOfOneSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if id := unixsocket.Identify(path, 0); id != (unixsocket.Identity{}) || id.IsSocket() {
		t.Errorf("of nothing: %+v", id)
	}
	listen := func() unixsocket.Identity {
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return unixsocket.Identify(path, 0)
	}
	first := listen()
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if now := unixsocket.Identify(path, 0); now != first || !first.IsSocket() {
		t.Errorf("%+v became %+v by a chmod", first, now)
	}
	link := path + "-link"
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if unixsocket.Identify(link, 0) != first || unixsocket.Identify(link, unix.AT_SYMLINK_NOFOLLOW).IsSocket() {
		t.Error("a link is followed where it is not to be, or is not where it is to be")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if second := listen(); second == first {
		t.Errorf("another socket is %+v too", second)
	}
}
