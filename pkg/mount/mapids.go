package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Maps says whether ids can be mapped at a mount.
type Maps struct {
	// IDs: those of its files can be mapped to a user namespace's.
	IDs bool
	// FSType is its file system's type, for people.
	FSType string
}

// MapsIDs says whether the ids of the files at path can be mapped to those of a user
// namespace (mount_setattr(2), MOUNT_ATTR_IDMAP; Linux 5.12 and later, and not of every
// file system). It tries, with a copy of the mount that no other process sees. The walk
// to path may wait for storage, as long as ctx lets it.
func (k *Kernel) MapsIDs(ctx context.Context, path string) (m Maps, err error) {
	row, err := k.rowOf(path)
	if err != nil {
		return Maps{}, fmt.Errorf("map ids of %s: %w", path, err)
	}
	m.FSType = row.fsType
	if !k.has(MountTree) {
		return m, nil
	}
	m.IDs, err = ask(ctx, k, callMapIDs, request{Path: path}, func() (bool, error) { return k.tryMapIDs(path) })
	return m, wrap(err, "map ids of %s", path)
}

func (k *Kernel) tryMapIDs(path string) (bool, error) {
	fd, err := k.openAny(path)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	ns, err := userNamespace()
	if err != nil {
		return false, fmt.Errorf("make a user namespace: %w", err)
	}
	defer ns.Close()
	tree, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return false, os.NewSyscallError("open_tree", err)
	}
	defer unix.Close(tree)
	err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns.Fd()),
	})
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EPERM): // its file system cannot; it is mapped already
		return false, nil
	}
	return err == nil, os.NewSyscallError("mount_setattr", err)
}

// userNamespace returns a user namespace of its own, which is there while the file is
// open. The kernel makes one for a new process only. That one never runs: it stops where
// it would be this program (ptrace), and is killed.
func userNamespace() (*os.File, error) {
	runtime.LockOSThread() // whose child is traced
	defer runtime.UnlockOSThread()
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 1 << 16, Size: 1 << 16}}
	p, err := os.StartProcess("/proc/self/exe", []string{"user-namespace"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, Ptrace: true,
	}})
	if err != nil {
		return nil, err
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", p.Pid))
	killed := p.Kill()
	_, waited := p.Wait()
	if err == nil && errors.Join(killed, waited) != nil {
		err = errors.Join(killed, waited, f.Close())
	}
	return f, err
}
