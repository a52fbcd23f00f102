package main

import (
	"os/user"
	"strconv"
)

// readers returns the id of the group of --api-readers, given by name or number; 0 if there is none.
func readers(group string) (uint32, error) {
	if group == "" {
		return 0, nil
	}
	id := group
	if g, err := user.LookupGroup(group); err == nil {
		id = g.Gid
	}
	n, err := strconv.ParseUint(id, 10, 32)
	switch {
	case err != nil:
		return 0, flagf("api-readers", group, "expected a group of this host, by name or number")
	case n == 0:
		return 0, flagf("api-readers", group, "root may do everything anyway; expected another group")
	}
	return uint32(n), nil
}
