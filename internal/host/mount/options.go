package mount

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// options are mount(8) options, sorted by what interprets them.
type options struct {
	set, clr uint64   // MOUNT_ATTR_ flags of the mount
	super    []string // flags common to all file systems, by name: "ro", "sync"
	data     []string // the file system's own
}

// attributes are the options of a mount by name. If options contradict, the last counts.
var attributes = map[string]struct{ set, clr uint64 }{
	"ro":          {unix.MOUNT_ATTR_RDONLY, 0},
	"rw":          {0, unix.MOUNT_ATTR_RDONLY},
	"nosuid":      {unix.MOUNT_ATTR_NOSUID, 0},
	"suid":        {0, unix.MOUNT_ATTR_NOSUID},
	"nodev":       {unix.MOUNT_ATTR_NODEV, 0},
	"dev":         {0, unix.MOUNT_ATTR_NODEV},
	"noexec":      {unix.MOUNT_ATTR_NOEXEC, 0},
	"exec":        {0, unix.MOUNT_ATTR_NOEXEC},
	"noatime":     {unix.MOUNT_ATTR_NOATIME, unix.MOUNT_ATTR__ATIME},
	"strictatime": {unix.MOUNT_ATTR_STRICTATIME, unix.MOUNT_ATTR__ATIME},
	"relatime":    {unix.MOUNT_ATTR_RELATIME, unix.MOUNT_ATTR__ATIME},
	"nodiratime":  {unix.MOUNT_ATTR_NODIRATIME, 0},
	"diratime":    {0, unix.MOUNT_ATTR_NODIRATIME},
	"nosymfollow": {unix.MOUNT_ATTR_NOSYMFOLLOW, 0},
	"symfollow":   {0, unix.MOUNT_ATTR_NOSYMFOLLOW},
}

// superFlags are the options common to all file systems, with their mount(2) flags.
// Read-only is already covered by attributes.
var superFlags = map[string]struct{ set, clr uintptr }{
	"ro":         {},
	"rw":         {},
	"sync":       {unix.MS_SYNCHRONOUS, 0},
	"async":      {0, unix.MS_SYNCHRONOUS},
	"dirsync":    {unix.MS_DIRSYNC, 0},
	"lazytime":   {unix.MS_LAZYTIME, 0},
	"nolazytime": {0, unix.MS_LAZYTIME},
	"mand":       {unix.MS_MANDLOCK, 0},
	"nomand":     {0, unix.MS_MANDLOCK},
}

// ignored lists options for mount(8) and fstab, which the kernel does not know.
var ignored = []string{"defaults", "_netdev", "nofail", "auto", "noauto", "user", "nouser", "users", "group", "owner"}

func parseOptions(flags []string) options {
	var o options
	for _, flag := range flags {
		for word := range splitOptions(flag) {
			o.add(word)
		}
	}
	return o
}

func (o *options) add(word string) {
	if word == "" || slices.Contains(ignored, word) || strings.HasPrefix(word, "x-") ||
		strings.HasPrefix(word, "X-") || strings.HasPrefix(word, "comment=") {
		return
	}
	a, isAttribute := attributes[word]
	if isAttribute {
		o.set = o.set&^a.clr | a.set
		o.clr = o.clr&^a.set | a.clr
	}
	_, isSuper := superFlags[word]
	if isSuper {
		o.super = append(o.super, word)
	}
	if !isAttribute && !isSuper {
		o.data = append(o.data, word)
	}
}

// splitOptions splits at commas outside double quotes, as mount(8) does
// (context="system_u:object_r:tmp_t:s0:c1,c2").
func splitOptions(s string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		start, quoted := 0, false
		for i := range len(s) {
			switch {
			case s[i] == '"':
				quoted = !quoted
			case s[i] == ',' && !quoted:
				if !yield(s[start:i]) {
					return
				}
				start = i + 1
			}
		}
		yield(s[start:])
	}
}

// flagsOld returns the options as mount(2) flags.
func (o options) flagsOld() uintptr {
	flags := oldFlags(o.set)
	for _, word := range o.super {
		flags = flags&^superFlags[word].clr | superFlags[word].set
	}
	return flags
}

// oldFlags translates MOUNT_ATTR_ flags to mount(2) flags.
func oldFlags(attr uint64) uintptr {
	var flags uintptr
	for _, f := range [...]struct {
		attr uint64
		ms   uintptr
	}{
		{unix.MOUNT_ATTR_RDONLY, unix.MS_RDONLY},
		{unix.MOUNT_ATTR_NOSUID, unix.MS_NOSUID},
		{unix.MOUNT_ATTR_NODEV, unix.MS_NODEV},
		{unix.MOUNT_ATTR_NOEXEC, unix.MS_NOEXEC},
		{unix.MOUNT_ATTR_NOATIME, unix.MS_NOATIME},
		{unix.MOUNT_ATTR_STRICTATIME, unix.MS_STRICTATIME},
		{unix.MOUNT_ATTR_NODIRATIME, unix.MS_NODIRATIME},
		{unix.MOUNT_ATTR_NOSYMFOLLOW, unix.MS_NOSYMFOLLOW},
	} {
		if attr&f.attr != 0 {
			flags |= f.ms
		}
	}
	return flags
}
