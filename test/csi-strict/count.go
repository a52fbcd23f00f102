package csistrict

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// count adds n to the publications of a volume at a target, which are never fewer than none.
func (d *Driver) count(id, target string, n int) {
	d.update(id, func(v *Volume) {
		if v.Counted == nil {
			v.Counted = map[string]int{}
		}
		v.Counted[target] += n
		if v.Counted[target] <= 0 {
			delete(v.Counted, target)
		}
	})
}

// counted refuses a call for a volume that has publications, if the script says so.
func (d *Driver) counted(v Volume) error {
	if !d.script().Counts {
		return nil
	}
	for target, n := range v.Counted {
		return status.Errorf(codes.Internal, "volume %s is still published at %s (%d times)", v.ID, target, n)
	}
	return nil
}
