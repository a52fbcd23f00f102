package mount

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Joined reports whether the mount at target takes part in the events of the mount that
// holds src as a bind of it with o does: as its peer if o.Peer, otherwise as its slave. A
// source without events has nothing to take part in.
func (k *Kernel) Joined(src *os.File, target string, o BindOptions) (bool, error) {
	var at groups
	from, err := k.groupsOf(int(src.Fd()))
	if err == nil {
		err = k.onMount(target, func(fd int) error {
			at, err = k.groupsOf(fd)
			return err
		})
	}
	switch {
	case err != nil:
		return false, wrap(err, "propagation from %s to %s", src.Name(), target)
	case from.shared != "" && o.Peer:
		return at.shared == from.shared, nil
	case from.shared != "":
		return at.master == from.shared, nil
	}
	return at.master == from.master, nil
}

// groups are the peer groups of a mount (mount_namespaces(7)): the one that it is in, and
// the one that it is a slave of; "" for none.
type groups struct{ shared, master string }

// groupsOf returns the groups of the mount that holds what fd refers to. It reads the
// mount table, and asks no file system.
func (k *Kernel) groupsOf(fd int) (groups, error) {
	info, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return groups{}, err
	}
	_, rest, _ := strings.Cut(string(info), "mnt_id:")
	id, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	table, err := k.mountinfo()
	if err != nil {
		return groups{}, err
	}
	for line := range bytes.Lines(table) {
		if text := string(line); strings.HasPrefix(text, id+" ") {
			return parseGroups(text), nil
		}
	}
	return groups{}, fmt.Errorf("mount %s is not in the mount table", id)
}

// parseGroups reads the tags of a line of mountinfo.
func parseGroups(line string) (g groups) {
	tags, _, _ := strings.Cut(line, " - ")
	for _, tag := range strings.Fields(tags)[6:] {
		switch key, group, _ := strings.Cut(tag, ":"); key {
		case "shared":
			g.shared = group
		case "master":
			g.master = group
		}
	}
	return g
}
