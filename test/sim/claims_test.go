package sim

import (
	"context"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// keyOf returns the key of the claim for which a volume is made.
func keyOf(name string) controller.Key { return controller.Key{Namespace: "n", Name: name} }

// claims is the store in which one life of the daemon keeps its claims, in the journal.
type claims struct {
	w *world
	l *life
}

func (c claims) LoadBucket(ctx context.Context, bucket string) (state.Values, error) {
	return c.w.disk.journal.LoadBucket(ctx, bucket)
}

func (c claims) CommitBucket(ctx context.Context, bucket string, changes map[string][]byte) error {
	w := c.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.l.dead {
		return errDead
	}
	if w.disk.fail > 0 {
		w.disk.fail--
		w.count.faults["disk"]++
		return errDisk
	}
	dies := w.springs("record")
	if dies && !w.trap.after {
		w.count.crashes["before a record"]++
		w.ends(c.l)
		return errDead
	}
	err := w.disk.journal.CommitBucket(ctx, bucket, changes)
	if dies {
		w.count.crashes["after a record"]++
		w.ends(c.l)
		return errDead
	}
	return err
}

type noSecrets struct{}

func (noSecrets) Secret(context.Context, state.SecretRef) (map[string]string, error) {
	return nil, errDisk
}

// usage answers like the program: with the pods that sources list, and the manager.
type usage struct {
	w *world
	l *life
}

// Wanted runs in the controller's loop; no caller of the controller waits for the loop with mu
// held.
func (u usage) Wanted(claim controller.Key) string {
	u.w.mu.Lock()
	defer u.w.mu.Unlock()
	for uid, p := range u.w.wishes {
		if _, wants := p.vols[claim.Name]; wants {
			return "pod " + uid
		}
	}
	return ""
}

func (u usage) Listed(claim controller.Key, _ state.VolumeID, _ string) string {
	u.w.mu.Lock()
	defer u.w.mu.Unlock()
	if u.w.foreign[claim.Name] {
		return "volume of another author"
	}
	return ""
}

func (u usage) InUse(id state.VolumeID, name string) string {
	return u.l.m.UsedBy(id, name, stagePath(name))
}

// control runs a life's controller, and updates the pods when their claims' volumes come and go.
func (l *life) control(ctx context.Context) {
	go func() {
		_ = l.c.Run(ctx)
		close(l.controlled)
	}()
	select {
	case <-l.c.Loaded():
	case <-ctx.Done():
		return
	}
	l.w.mu.Lock()
	for name, listed := range l.w.claims {
		if listed {
			l.c.SetClaim(l.w.claimOf(name))
		}
	}
	l.tellGroups(false)
	l.claimed = true
	l.w.mu.Unlock()
	for {
		changed := l.c.Changed()
		l.w.mu.Lock()
		for name, listed := range l.w.cuts {
			if listed && !l.dead {
				l.c.SetSnapshot(l.w.cutOf(name))
			}
		}
		l.tellGroups(true)
		for uid, p := range l.told {
			for _, v := range p.Volumes {
				if volumes[v.Names[0]].claimed && !l.dead && (v.Problem == "") != l.bound(v.Names[0]) {
					l.set(uid, false)
					break
				}
			}
		}
		l.w.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return
		case <-l.died:
			return
		}
	}
}

// bound reports whether a claim is listed and has its volume; mu is held.
func (l *life) bound(name string) bool {
	if !l.w.claims[name] {
		return false
	}
	for _, v := range l.c.Volumes() {
		if v.Name == name && !v.Released {
			return true
		}
	}
	return false
}

// asked is what the owner of a claim asks for besides the volume.
type asked struct {
	size       int64
	attributes string
}

func (w *world) claimOf(name string) controller.Claim {
	ask := w.asks[name]
	c := controller.Claim{
		Key: keyOf(name), UID: name[len("pvc-"):], SizeBytes: 1 + ask.size, AccessModes: []state.AccessMode{state.ReadWriteOnce}, Mode: state.Filesystem,
		Class: controller.Class{Name: "c", Provisioner: volumes[name].driver, AllowExpansion: true, Retain: retained[name]},
	}
	if from := origins[name]; from != "" && !strings.HasPrefix(from, "pvc-") {
		c.Source, c.SizeBytes = &controller.DataSource{Snapshot: keyOf(from)}, c.SizeBytes+grown
	} else if from != "" {
		c.Source, c.SizeBytes = &controller.DataSource{Claim: keyOf(from)}, c.SizeBytes+grown
	}
	if ask.attributes != "" {
		c.Attributes = controller.AttributesClass{
			Attributes: controller.Attributes{Class: ask.attributes, Parameters: map[string]string{"tier": ask.attributes}}, Driver: volumes[name].driver,
		}
	}
	return c
}

// grown is more than a claim ever grows by, so that a copy of it is large enough.
const grown = 100

// origins names the claim that a claim's volume is cloned from, or the snapshot that it is restored
// from.
var origins = map[string]string{"pvc-1": "pvc-0", "pvc-2": "s0", "pvc-3": "s1", "pvc-5": "g0-pvc-0", "pvc-6": "g1-pvc-4"}

// retained are the claims, snapshots and group snapshots that outlive a deletion without their
// data.
var retained = map[string]bool{"s1": true, "g1": true, "pvc-1": true}

// cutOf returns a snapshot as the program would request it; mu is held.
func (w *world) cutOf(name string) controller.Snapshot {
	from := sourceOfCut(name)
	if copies[name] != "" {
		return copyOf(name)
	}
	s := controller.Snapshot{
		Key: keyOf(name), UID: aloneAs(name), Claim: keyOf(from), Mode: state.Filesystem,
		Class: controller.SnapshotClass{Name: "c", Driver: volumes[from].driver, Retain: retained[name]},
	}
	for _, v := range w.life.c.Volumes() {
		if v.Name == from && w.claims[from] {
			s.Volume = v.Handle
		}
	}
	if s.Volume == "" {
		s.Refused, s.Class.Driver = "its claim has no volume", ""
	}
	return s
}

// aloneAs returns the UID of a single snapshot, which may have the name of a group's member.
func aloneAs(name string) string { return strings.ReplaceAll(name, "-", "_") }

// cut lists a snapshot; mu is held.
func (w *world) cut(name string) {
	_, left := w.life.c.Snapshot(keyOf(name))
	if copies[name] != "" && !w.known(copies[name]) || !left && w.only(name) {
		return
	}
	w.cuts[name] = true
	w.judge.has[name] = false
	if copies[name] != "" && !left && !w.life.dead && w.life.shown {
		w.orders[aloneAs(name)] = 0 // its record went, and another has the driver's snapshot
	}
	w.life.c.SetSnapshot(w.cutOf(name))
}

// uncut makes the owner delete a snapshot; with data, also a retained one. mu is held.
func (w *world) uncut(name string, data bool) {
	l := w.life
	if l.dead {
		return
	}
	w.cuts[name] = false
	l.c.RemoveSnapshot(keyOf(name))
	w.order(aloneAs(name), data, w.heirs(name), func(ctx context.Context) error { return l.c.DeleteSnapshot(ctx, keyOf(name), data) })
}

// ask changes what the owner of a claim asks for; mu is held.
func (w *world) ask(name string, change func(*asked)) {
	ask := w.asks[name]
	change(&ask)
	w.asks[name] = ask
	if w.claims[name] && !w.life.dead {
		w.life.c.SetClaim(w.claimOf(name))
	}
}

// claim lists a claim; mu is held.
func (w *world) claim(name string) {
	if w.claims[name] {
		return
	}
	w.claims[name] = true
	if _, left := w.life.c.Claim(keyOf(name)); !left && !w.life.dead && w.life.shown {
		w.orders[name] = 0 // it went before it had a volume
	}
	w.life.c.SetClaim(w.claimOf(name))
}

// unclaim makes the owner delete a claim, but not before the daemon knows all users, nor while a
// pod names the claim; with data, also a retained one. mu is held.
func (w *world) unclaim(name string, data bool) {
	l := w.life
	if l.dead || len(l.spoken) < len(sources) || !l.shown || !l.showsAll() {
		return
	}
	for _, p := range w.wishes {
		if _, wants := p.vols[name]; wants {
			return
		}
	}
	empty := !l.bound(name) // no pod could use such a volume, so it has no data to retain
	w.claims[name] = false
	w.unlisted[name]++
	l.c.RemoveClaim(keyOf(name))
	deletion := func(ctx context.Context) error { return l.c.Delete(ctx, keyOf(name), data) }
	w.order(name, data || empty, nil, w.spares(name, data || !retained[name], deletion))
}

// unclaimAll checks that snapshots, and claims whose pods are gone, can be deleted with their data.
func (w *world) unclaimAll() {
	for range 3 {
		w.mu.Lock()
		clear(w.foreign)
		for name := range w.claims {
			w.unclaim(name, true)
		}
		for name := range w.cuts {
			w.uncut(name, true)
		}
		for name := range w.groups {
			w.ungroup(name, true)
		}
		w.mu.Unlock()
		w.pass(patience)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.forgets() {
		return
	}
	if len(w.life.c.Claims()) > 0 || len(w.backend) > 0 && !w.disk.damaged {
		w.breach("claims: left after each was deleted: %+v, volumes %v", w.life.c.Claims(), sortedKeys(w.backend))
	}
	if len(w.life.c.Snapshots()) > 0 || len(w.shelf) > 0 && !w.disk.damaged {
		w.breach("snapshots: left after each was deleted: %+v, at the storage %v", w.life.c.Snapshots(), sortedKeys(w.shelf))
	}
	if len(w.life.c.Groups()) > 0 || len(w.bundles) > 0 {
		w.breach("groups: left after each was deleted: %+v, at the storage %v", w.life.c.Groups(), sortedKeys(w.bundles))
	}
}

// provided checks that listed claims and snapshots get what they ask for; mu is held.
func (w *world) provided() {
	if w.forgets() {
		return
	}
	for _, name := range sortedKeys(w.claims) {
		from := origins[name]
		if !w.claims[name] || w.disk.damaged || from != "" && !w.claims[from] && !w.cuts[from] && !w.groups[ownerOf(from)].listed {
			continue // its origin may be gone
		}
		s, _ := w.life.c.Claim(keyOf(name))
		if s.Volume == nil || s.Reason != "" {
			if w.gone(from) || w.undecided(name) {
				continue
			}
			w.breach("claims: %s never gets what it asks for: %+v", name, s)
			continue
		}
		got, ask := w.backend[s.Volume.Handle], w.asks[name]
		if got == nil || got.size < 1+ask.size || ask.attributes != "" && got.attributes != ask.attributes {
			w.breach("claims: %s asks for %+v and has %+v", name, ask, got)
		}
	}
	for _, name := range sortedKeys(w.cuts) {
		s, _ := w.life.c.Snapshot(keyOf(name))
		switch {
		case s.Group != controller.Key{}: // it belongs to a group; regrouped checks that
		case w.cuts[name] && s.Handle == "" && w.only(name): // it waits until the other author deletes its own
		case w.cuts[name] && !s.Ready && w.claims[sourceOfCut(name)] && !w.disk.damaged && s.Reason != "its claim has no volume":
			w.breach("snapshots: %s never gets ready: %+v", name, s)
		case !w.cuts[name] && s.Phase == controller.Deleting && !w.restored(name) && !w.disk.damaged:
			w.breach("snapshots: %s never goes: %+v", name, s)
		}
	}
}

// withdrawn reports whether a snapshot or clone of pvc-0 may still be in the making, while its
// owner neither lists nor deletes it: the volume waits for the owner. mu is held.
func (w *world) withdrawn() bool {
	for _, c := range w.life.c.Claims() {
		if origins[c.Claim.Name] == "pvc-0" && !w.claims[c.Claim.Name] && c.Volume == nil && c.Phase != controller.Deleting {
			return true
		}
	}
	for _, s := range w.life.c.Snapshots() {
		listed := w.cuts[s.Snapshot.Name]
		if s.Group != (controller.Key{}) { // a listed one of the same name is another snapshot
			listed = w.groups[s.Group.Name].listed
		}
		if !listed && !s.Ready && s.Phase != controller.Deleting {
			return true
		}
	}
	return false
}

// undecided reports whether the volume of a claim that was deleted and is listed again waits for
// another owner, and says so; mu is held.
func (w *world) undecided(name string) bool {
	s, _ := w.life.c.Claim(keyOf(name))
	return s.Phase == controller.Deleting && strings.Contains(s.Reason, "no longer listed") && w.withdrawn()
}

// restored reports whether a claim from the snapshot may still be in the making, while its owner
// does not list it: the snapshot waits for the owner. mu is held.
func (w *world) restored(snapshot string) bool {
	for _, c := range w.life.c.Claims() {
		if origins[c.Claim.Name] == snapshot && !w.claims[c.Claim.Name] && c.Volume == nil {
			return true
		}
	}
	return false
}

// gone reports whether the origin of a claim is missing, so that the claim waits; mu is held.
func (w *world) gone(from string) bool {
	if from == "" {
		return false
	}
	if s, ok := w.life.c.Snapshot(keyOf(from)); ok {
		return !s.Ready
	}
	return !w.life.bound(from)
}
