package mount

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Propagation says whether mounts made or removed below a mount also appear at
// its peers, and theirs here (mount_namespaces(7)).
type Propagation uint8

const (
	// Private: neither.
	Private Propagation = iota
	// Slave: theirs appear here, not the other way round.
	Slave
	// Shared: both.
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

// Remount gives the topmost mount at target exactly the options o, which
// includes that it takes away those that are false. Its file system is not
// changed; that is [Kernel.Reconfigure].
func (k *Kernel) Remount(target string, o BindOptions) error {
	err := k.onMount(target, func(fd int) error {
		set := o.attributes()
		return k.changeFlags(fd, flagChange{set: set, clr: allAttributes &^ set, recursive: o.Recursive})
	})
	if err != nil {
		return fmt.Errorf("remount %s: %w", target, err)
	}
	return nil
}

// Restrict gives the topmost mount at target the options o besides those that it has.
// o.Private changes nothing: it is for a mount that is being made.
func (k *Kernel) Restrict(target string, o BindOptions) error {
	err := k.onMount(target, func(fd int) error {
		return k.changeFlags(fd, flagChange{set: o.attributes(), recursive: o.Recursive})
	})
	if err != nil {
		return fmt.Errorf("restrict %s: %w", target, err)
	}
	return nil
}

// flagChange is a change of a mount's MOUNT_ATTR_ flags.
type flagChange struct {
	set, clr  uint64
	recursive bool // also of the mounts below it
	private   bool // of a mount that is being made
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
	if err != nil {
		return fmt.Errorf("make %s %s: %w", target, p, err)
	}
	return nil
}

// onMount calls f with a descriptor of the mount at target.
func (k *Kernel) onMount(target string, f func(fd int) error) error {
	clean, err := cleanPath(target)
	if err != nil {
		return err
	}
	fd, err := k.openAny(clean)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return f(fd)
}
