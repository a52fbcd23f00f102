package mount

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOptionsGoToWhomTheySpeakTo(t *testing.T) {
	o := parseOptions([]string{
		`defaults,noatime,ro`, `context="u:o:t:s0:c1,c2",sync`, "rw", "relatime", "nofail,x-systemd.automount,comment=x", "", "data=ordered",
	})
	if want := []string{`context="u:o:t:s0:c1,c2"`, "data=ordered"}; !slices.Equal(o.data, want) {
		t.Errorf("data %q, want %q", o.data, want)
	}
	if want := []string{"ro", "sync", "rw"}; !slices.Equal(o.super, want) {
		t.Errorf("super %q, want %q", o.super, want)
	}
	if o.set != 0 || o.clr != unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR__ATIME {
		t.Errorf("set %x, clr %x: the last word of an option counts", o.set, o.clr)
	}
	if flags := o.flagsOld(); flags != unix.MS_SYNCHRONOUS {
		t.Errorf("mount(2) flags %x: rw came after ro", flags)
	}
}

func TestFeaturesAreNamed(t *testing.T) {
	if got := (OpenAt2 | MountID).String(); got != "openat2,mount-id" {
		t.Errorf("%q", got)
	}
}
