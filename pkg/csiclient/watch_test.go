package csiclient

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/host/unixsocket"
)

// If a socket is replaced between the look at its identity and the connection, identified
// tries again, and returns a connection with the identity of the same socket.
func TestSocketAppearsWhileItIsDialled(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "csi.sock")
	listen := func(name string) string {
		l, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return filepath.Join(dir, name)
	}
	moves := []string{listen("first"), listen("second")}
	tries := 0
	conn, id, err := identified(t.Context(), path, func() (net.Conn, error) {
		if tries < len(moves) {
			if err := os.Rename(moves[tries], path); err != nil {
				t.Fatal(err)
			}
		}
		tries++
		return net.Dial("unix", path)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if id == (unixsocket.Identity{}) || id != unixsocket.Identify(path, 0) || tries != 3 {
		t.Errorf("after %d tries the socket is %+v, want %+v after 3", tries, id, unixsocket.Identify(path, 0))
	}
}
