package mount

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Propagation says whether mounts and unmounts below a mount also happen at its peers,
// and theirs here (mount_namespaces(7)).
type Propagation uint8

const (
	// Private means neither direction.
	Private Propagation = iota
	// Slave means that events at the peers propagate here, but not the other way round.
	Slave
	// Shared means both directions.
	Shared
)

var propagationFlags = [...]uint64{Private: unix.MS_PRIVATE, Slave: unix.MS_SLAVE, Shared: unix.MS_SHARED}

var propagationNames = [...]string{Private: "private", Slave: "slave", Shared: "shared"}

func (p Propagation) String() string {
	if int(p) < len(propagationNames) {
		return propagationNames[p]
	}
	return fmt.Sprintf("Propagation(%d)", uint8(p))
}

// Restrict adds the options o to those of the topmost mount at target. It ignores
// o.Peer, which is for new mounts.
func (k *Kernel) Restrict(target string, o BindOptions) error {
	err := k.onMount(target, func(fd int) error {
		return k.changeFlags(fd, flagChange{set: o.attributes(), recursive: o.Recursive})
	})
	return wrap(err, "restrict %s", target)
}

// Adjust changes the listed options of the topmost mount at target, by mount(8)'s names,
// and keeps its others.
func (k *Kernel) Adjust(target string, options []string) error {
	o := parseOptions(options)
	err := k.onMount(target, func(fd int) error { return k.changeFlags(fd, flagChange{set: o.set, clr: o.clr}) })
	return wrap(err, "set the options of %s", target)
}

// AdjustRestricted is [Kernel.Adjust] for a mount at target that shows source: like [Kernel.BindRestricted] it lifts
// nothing that source's own mount forbids.
func (k *Kernel) AdjustRestricted(source, target string, options []string) error {
	o := parseOptions(options)
	err := k.onMount(source, func(fd int) error {
		var st unix.Statfs_t
		if err := unix.Fstatfs(fd, &st); err != nil {
			return os.NewSyscallError("fstatfs", err)
		}
		o.clr &^= forbidden(int64(st.Flags))
		return nil
	})
	if err == nil {
		err = k.onMount(target, func(fd int) error { return k.changeFlags(fd, flagChange{set: o.set, clr: o.clr}) })
	}
	return wrap(err, "set the options of %s", target)
}

// forbidden translates statfs's ST_ flags that forbid something to MOUNT_ATTR_ flags.
func forbidden(st int64) (attrs uint64) {
	for _, f := range []struct {
		st   int64
		attr uint64
	}{
		{unix.ST_RDONLY, unix.MOUNT_ATTR_RDONLY},
		{unix.ST_NOSUID, unix.MOUNT_ATTR_NOSUID},
		{unix.ST_NODEV, unix.MOUNT_ATTR_NODEV},
		{unix.ST_NOEXEC, unix.MOUNT_ATTR_NOEXEC},
	} {
		if st&f.st != 0 {
			attrs |= f.attr
		}
	}
	return attrs
}

// flagChange is a change of a mount's MOUNT_ATTR_ flags.
type flagChange struct {
	set, clr  uint64
	recursive bool // also change the mounts below it
	peer      bool // a new mount stays a peer of its source
}

func (k *Kernel) changeFlags(fd int, c flagChange) error {
	if c.set|c.clr == 0 {
		return nil
	}
	if !k.has(MountTree) {
		return k.changeFlagsOld(fd, c)
	}
	return setAttr(fd, unix.MountAttr{Attr_set: c.set, Attr_clr: c.clr}, c.recursive)
}

// SetPropagation sets the propagation of the topmost mount at target.
func (k *Kernel) SetPropagation(target string, p Propagation) error {
	err := k.onMount(target, func(fd int) error {
		if int(p) >= len(propagationFlags) {
			return unix.EINVAL
		}
		if !k.has(MountTree) {
			return mountOld("none", procFD(fd), "", uintptr(propagationFlags[p]), "")
		}
		return setAttr(fd, unix.MountAttr{Propagation: propagationFlags[p]}, false)
	})
	return wrap(err, "make %s %s", target, p)
}

// onMount calls f with a descriptor of the mount at target.
func (k *Kernel) onMount(target string, f func(fd int) error) error {
	fd, err := k.openAny(target)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return f(fd)
}
