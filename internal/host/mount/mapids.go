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
	// IDs means that the ids of its files can be mapped to those of a user namespace.
	IDs bool
	// FSType is its file system's type, for people.
	FSType string
}

// MapsIDs reports whether the ids of the files at path can be mapped to those of a user
// namespace (mount_setattr(2), MOUNT_ATTR_IDMAP; Linux 5.12, and not for every file
// system). It tries on a copy of the mount that no other process sees. Resolving path may
// wait for storage until ctx ends.
func (k *Kernel) MapsIDs(ctx context.Context, path string) (Maps, error) {
	m, err := askAway(ctx, k, callMapIDs, request{Path: path}, func() (Maps, error) { return k.mapsIDs(path) })
	return m, wrap(err, "map ids of %s", path)
}

func (k *Kernel) mapsIDs(path string) (m Maps, err error) {
	row, err := k.rowOf(path)
	if err != nil {
		return Maps{}, err
	}
	m.FSType = row.fsType
	if k.has(MountTree) {
		m.IDs, err = k.tryMapIDs(path)
	}
	return m, err
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
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EPERM): // the file system cannot; it is already mapped
		return false, nil
	}
	return err == nil, os.NewSyscallError("mount_setattr", err)
}

// userNamespace returns a new user namespace, which exists while the file is open. The
// kernel creates one only for a new process. That process never runs: ptrace stops it
// before its first instruction, and it is killed.
func userNamespace() (*os.File, error) {
	runtime.LockOSThread() // ptrace is per thread
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
