package mount

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// OnDevtmpfs reports whether what f is open at, for identity or not, lies on the
// kernel's devtmpfs: there the kernel makes the nodes of the devices that it has,
// and no container does, as its own /dev is another file system.
func (k *Kernel) OnDevtmpfs(f *os.File) (bool, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return false, fmt.Errorf("look at %s: %w", f.Name(), os.NewSyscallError("fstat", err))
	}
	rows, err := k.readMountinfo()
	if err != nil {
		return false, fmt.Errorf("look at %s: %w", f.Name(), err)
	}
	dev := DeviceOf(st.Dev)
	return slices.ContainsFunc(rows, func(r row) bool { return r.fsType == "devtmpfs" && r.dev == dev }), nil
}
