package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// grouped is the request of a group snapshot's owner: snapshots of the claims, at one moment.
type grouped struct {
	listed bool
	of     []string
}

// freezes is how long the file systems may be frozen for a group snapshot. A driver that makes
// groups needs no freeze.
var freezes = map[string]time.Duration{"g0": 10 * time.Second, "g1": time.Second}

// isGroup reports whether the name is a group snapshot's.
func isGroup(name string) bool { return freezes[name] > 0 }

// groupOf returns a group snapshot as the program would request it: with its listed claims, once
// each has its volume; mu is held.
func (w *world) groupOf(name string) controller.Group {
	g := controller.Group{Key: keyOf(name), UID: name, Freeze: freezes[name], Class: controller.SnapshotClass{Name: "c"}}
	if w.set.groups && name == "g0" {
		g.Freeze = 0
	}
	for _, of := range w.groups[name].of {
		switch {
		case !w.claims[of]:
		case !w.life.bound(of):
			g.Waits = "claim " + of + " has no volume yet"
			return g
		default:
			g.Members = append(g.Members, controller.Member{Claim: keyOf(of), Volume: of, Mode: state.Filesystem})
		}
	}
	if len(g.Members) == 0 {
		g.Refused = "no claim has its labels"
		return g
	}
	g.Class.Driver, g.Class.Retain = volumes["pvc-0"].driver, retained[name]
	return g
}

// tellGroup passes a group snapshot's request on. Claims do not change a group that was made; mu is
// held.
func (l *life) tellGroup(name string) {
	g := l.w.groupOf(name)
	if s, known := l.c.Group(keyOf(name)); known && s.Content != "" {
		g = controller.Group{Key: g.Key, UID: g.UID, Freeze: g.Freeze, Class: controller.SnapshotClass{Name: "c"}, Refused: "no claim is looked at"}
	}
	l.c.SetGroup(g)
}

// tellGroups does so for all groups; with changed, for those that a changed claim may affect. mu is
// held.
func (l *life) tellGroups(changed bool) {
	for name, g := range l.w.groups {
		if s, _ := l.c.Group(keyOf(name)); g.listed && !l.dead && (!changed || s.Content == "") {
			l.tellGroup(name)
		}
	}
}

// group lists a group snapshot, or changes its claims; mu is held.
func (w *world) group(name string, of []string) {
	w.groups[name] = grouped{true, of}
	if _, left := w.life.c.Group(keyOf(name)); !left && !w.life.dead && w.life.shown {
		w.orders[name] = 0 // it went without a call
	}
	if !w.life.dead {
		w.life.tellGroup(name)
	}
}

// ungroup makes the owner delete a group snapshot; with data, also a retained one. mu is held.
func (w *world) ungroup(name string, data bool) {
	l := w.life
	if l.dead {
		return
	}
	w.groups[name] = grouped{of: w.groups[name].of}
	l.c.RemoveGroup(keyOf(name))
	w.order(name, data, w.heirs(name), func(ctx context.Context) error { return l.c.DeleteGroup(ctx, keyOf(name), data) })
}

// regrouped checks that listed group snapshots get ready and that deleted ones go; mu is held.
func (w *world) regrouped() {
	if len(w.holds) > 0 {
		w.breach("freeze: file systems are frozen for ever: %v", sortedKeys(w.holds))
	}
	if w.forgets() {
		return
	}
	for _, name := range sortedKeys(w.groups) {
		s, _ := w.life.c.Group(keyOf(name))
		waits := false
		for _, c := range w.life.c.Claims() { // the owner must decide about it first
			waits = waits || strings.HasPrefix(origins[c.Claim.Name], name+"-") && !w.claims[c.Claim.Name] && c.Volume == nil
		}
		listed, g := w.groups[name].listed, w.groupOf(name)
		asks := len(s.Snapshots) > 0 || g.Refused+g.Waits == "" && !w.taken(g)
		switch {
		case w.disk.damaged || s.Phase == controller.Deleting && waits:
		case listed && asks && !s.Ready:
			w.breach("groups: %s never gets ready: %+v", name, s)
		case !listed && s.Phase == controller.Deleting:
			w.breach("groups: %s never goes: %+v", name, s)
		}
	}
}

// taken reports whether a snapshot outside the group has the name that one of the group's would
// get; mu is held.
func (w *world) taken(g controller.Group) bool {
	return slices.ContainsFunc(g.Members, func(m controller.Member) bool {
		s, there := w.life.c.Snapshot(keyOf(g.Name + "-" + m.Claim.Name))
		return there && s.Group == (controller.Key{})
	})
}

// bundle is a group snapshot at the storage.
type bundle struct {
	owner         string
	of, snapshots []string
}

// ownerOf returns who asked for an object of this name at the storage: a snapshot, or its group.
func ownerOf(name string) string {
	name = strings.TrimPrefix(name, "group")
	name, _, _ = strings.Cut(strings.TrimPrefix(name, "snapshot-"), "-")
	return name
}

// ofOwner returns the snapshots at the storage that were made for an owner; mu is held.
func (w *world) ofOwner(name string) (ids []string) {
	for _, id := range sortedKeys(w.shelf) {
		if w.shelf[id].owner == name {
			ids = append(ids, id)
		}
	}
	return ids
}

// groups compares the controller's group snapshots with the storage: a ready one has exactly the
// snapshots of its claims, and the snapshots of one called frozen are from one moment; mu is held.
func (j *judge) groups(l *life) {
	w := j.w
	if len(w.groups) == 0 || w.disk.damaged {
		return
	}
	j.still(l)
	for _, s := range l.c.Groups() {
		name := s.Group.Name
		if !s.Ready {
			continue
		}
		var cuts []*stored
		var handles []string
		for i, claim := range s.Claims {
			cut, _ := l.c.Snapshot(keyOf(s.Snapshots[i]))
			got := w.shelf[cut.Handle]
			if got == nil || got.from != claim || got.owner != name || got.looks >= 0 {
				w.breach("groups: %s is ready, and for claim %s has %s, which is %+v: %+v", name, claim, cut.Handle, got, s)
				return
			}
			cuts, handles = append(cuts, got), append(handles, cut.Handle)
		}
		slices.Sort(handles)
		if has := w.ofOwner(name); !slices.Equal(handles, has) {
			w.breach("groups: %s is ready with snapshots %v, and the storage has %v of it", name, handles, has)
		}
		if b := w.bundles[s.Handle]; (b != nil) != w.set.groups || b != nil && b.owner != name {
			w.breach("groups: %s is ready with handle %q, and the storage has %+v", name, s.Handle, b)
		}
		switch s.Consistency {
		case controller.Frozen:
			if !together(cuts) {
				w.breach("groups: %s is called frozen, and its snapshots are not of one moment", name)
			}
		case controller.Apart:
		default:
			if !w.set.groups {
				w.breach("groups: %s of a driver that makes none is called %q", name, s.Consistency)
			}
		}
		if !j.whole[name] {
			w.count.groups[fmt.Sprintf("%s of %d, by one call: %v", s.Consistency, len(cuts), w.set.groups)]++
		}
		j.whole[name] = true
	}
}

// grouping returns steps of owners who take snapshots of several volumes at once, and steps that
// change those volumes meanwhile.
func grouping(r *rand.Rand) []string {
	name := fmt.Sprintf("g%d", r.IntN(2))
	data := []string{"", " data"}[r.IntN(2)]
	of := []string{"pvc-0,pvc-4", "pvc-0,pvc-4", "pvc-0,pvc-4", "pvc-0,pvc-1", "pvc-0,pvc-1,pvc-4", "pvc-4"}[r.IntN(6)]
	one := []string{"pvc-0", "pvc-1", "pvc-4", "pvc-4"}[r.IntN(4)]
	restored := fmt.Sprintf("pvc-%d", 5+r.IntN(2))
	group := "group " + name + " " + of
	switch roll := r.IntN(32); {
	case roll < 3:
		return []string{group}
	case roll < 7:
		return []string{"claim pvc-4", "claim pvc-0", "wait 3s", group}
	case roll < 10:
		return []string{"ungroup " + name + data}
	case roll < 11:
		return []string{"grow " + one}
	case roll < 12:
		return []string{"modify " + one + " " + []string{"gold", "silver"}[r.IntN(2)]}
	case roll < 14:
		return []string{"unclaim " + one + data}
	case roll < 16:
		return []string{"claim " + restored}
	case roll < 17:
		return []string{"unclaim " + restored + data}
	case roll < 19: // all at once
		return []string{"claim pvc-4", group, "grow " + one, "modify pvc-4 gold", "cut s0", "unclaim pvc-4 data"}
	case roll < 20: // one snapshot of a group alone
		return []string{"uncut " + name + "-" + one + " data"}
	case roll < 21:
		return []string{group, fmt.Sprintf("trap record %d %v", 1+r.IntN(5), r.IntN(2) == 0)}
	case roll < 22:
		return []string{group, fmt.Sprintf("trap storage %d %v", 1+r.IntN(5), r.IntN(2) == 0)}
	case roll < 23:
		return []string{group, "wait " + []string{"100ms", "600ms", "2s"}[r.IntN(3)], []string{"crash", "reboot", "ungroup " + name + data, "driver kill d"}[r.IntN(4)]}
	case roll < 25: // a snapshot with the name of a group's
		return []string{"cut " + name + "-" + one}
	case roll < 27: // a group goes while it is being restored
		return []string{"claim " + restored, "wait 600ms", "unclaim " + restored + data, "ungroup " + name + " data"}
	case roll < 28: // the operator has repaired the storage
		return []string{"hurry " + name}
	case roll < 31: // a claim goes while the making of its group ends
		return []string{
			"claim pvc-4", "wait 3s", fmt.Sprintf("faults 60 %d", r.IntN(1e6)), "group " + name + " pvc-4", "wait 400ms", "unclaim pvc-4 data",
			fmt.Sprintf("trap record %d %v", 1+r.IntN(3), r.IntN(2) == 0), "wait 3s",
		}
	default:
		return []string{"wait " + []string{"500ms", "3s", "2m"}[r.IntN(3)]}
	}
}
