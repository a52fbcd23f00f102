package mount

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// OnDevtmpfs reports whether the file that f refers to is on the kernel's devtmpfs; f may
// be opened with O_PATH. Only the kernel creates the nodes there, for devices that exist.
// A container cannot, because its own /dev is another file system.
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
