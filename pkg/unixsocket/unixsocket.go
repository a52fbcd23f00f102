// Package unixsocket connects to unix sockets whose paths may be longer than an
// address holds, as those of drivers are below a deep root directory. It knows
// nothing of what is spoken there. Dial may be called by any goroutine.
package unixsocket

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// MaxPath is the longest path that a unix socket's address holds (unix(7), less
// the terminating NUL).
const MaxPath = 107

// Dial connects to the socket at path, also where path is too long for an
// address: then by way of a descriptor of its directory, so that its last element
// alone has to fit.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	if len(path) <= MaxPath {
		return d.DialContext(ctx, "unix", path)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	short := filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), filepath.Base(path))
	return d.DialContext(ctx, "unix", short)
}
