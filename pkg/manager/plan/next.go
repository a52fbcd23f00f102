package plan

import (
	"cmp"
	"maps"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Facts is what Next has to know besides the wish and the record.
type Facts struct {
	Driver DriverFacts
	// Synced: every source of wishes has spoken since the daemon started.
	Synced bool
	// Keep says, for pods that the record names and that do not want the volume,
	// why what they have must stay; see [Keep]. No entry: proven unwanted. For
	// pods that want it otherwise than it was begun, it says why it is not known
	// that they do not use it.
	Keep map[state.PodUID]string
	// Ladder is what is done about an unmount of the volume that keeps failing.
	Ladder Ladder
	// Order is the removal, with its step, that an operator asked for; zero is none.
	Order Op
	// Dead is what is known of the server of what is staged, or was published last.
	Dead Dead
	// Doubt is what may be of the volume on the host without a record.
	Doubt Doubt
}

// DriverFacts is what is known of the volume's driver.
type DriverFacts struct {
	Up bool
	// Why says why it is not up.
	Why string
	// Full says why the volume may not be begun here: as many are as the driver
	// serves on a node, or it is out of its reach; "" where nothing is in the way.
	Full string
	// Attach, Stage, Expand and MountGroup are its abilities, meaningful while it is up.
	Attach, Stage, Expand, MountGroup bool
	// Offline: it makes volumes larger only while no pod has them.
	Offline bool
}

// Reasons for waiting that this package states itself.
const (
	reasonSources = "not every source of pods has spoken yet, so nothing is removed"
	reasonFinal   = "the driver's answer forbids a repetition until the driver registers again, " +
		"what pods want changes, or the volume is staged anew"
	reasonBackoff    = "waiting to try again after a failure"
	reasonOtherwise  = "the pod now asks for another form of mount; this one stays until the pod's containers have ended"
	reasonReattached = "the volume was attached anew while pods have it as it was before; it is staged anew once they " +
		"are gone"
	reasonOffline = "the driver expands volumes only while no pod has them: this one grows when its pods are gone " +
		"and it is staged again"
	reasonROSize = "the volume is mounted read-only, so it cannot be expanded here"
)

// Next returns the one call that moves v towards w, or else why none is made.
// Both are zero when the volume is as wanted.
//
// Removal comes first, then what builds up; a step that has to wait does not
// keep another that is independent of it from being made.
func Next(w state.Want, v state.Volume, f Facts, now time.Time) (Op, Held) {
	w = keepShared(w, v, f)
	v = renew(v, w, f)
	v, _ = Resize(v, w, f)
	c := chooser{driver: f.Driver, ladder: f.Ladder, order: f.Order, doubt: f.Doubt, dead: f.Dead, now: now}
	c.unmount(w, v, f)
	switch {
	case v.Unmounted() && mustGo(v.Stage, w, v):
		c.remove(Op{Kind: Unstage}, v.Stage, keepers(w, v), f)
	case v.Unmounted() && v.Stage.Phase != state.Absent && c.dead.Known:
		c.redo(Op{Kind: Unstage}, f)
	case v.Unmounted() && v.Stage.Phase == state.Absent && mustGo(v.Attach, w, v) && !keepsAttach(w, v):
		c.remove(Op{Kind: Detach}, v.Attach, keepers(w, v), f)
	case len(w.Pods) > 0:
		c.build(w, v)
	}
	return c.op, c.held
}

// chooser takes the first call that may be made and remembers the first reason
// why an earlier one may not.
type chooser struct {
	driver DriverFacts
	ladder Ladder
	order  Op
	doubt  Doubt
	dead   Dead
	now    time.Time
	op     Op
	held   Held
}

func (c *chooser) hold(op Op, why why, until time.Time) {
	if c.held.Code == "" {
		c.held.Step, c.held.Pod, c.held.Code, c.held.Reason = op.Kind, op.Pod, why.code, why.text
		c.held.Operator, c.held.Dead = why.code == Unrecorded, why.code == DeadMount
	}
	if !until.IsZero() && (c.held.Until.IsZero() || until.Before(c.held.Until)) {
		c.held.Until = until
	}
}

func (c *chooser) propose(op Op, failed *state.Retry) {
	op, r := c.escalate(op, failed.Value())
	switch {
	case c.op.Kind != None:
	case !c.driver.Up:
		c.hold(op, why{DriverDown, c.driver.Why}, time.Time{})
	case r.Final:
		c.hold(op, why{Final, reasonFinal}, time.Time{})
	case r.NotBefore.After(c.now):
		c.hold(op, why{Pause, reasonBackoff}, r.NotBefore)
	default:
		c.op, c.held = op, Held{}
	}
}

// unmount offers the removal of every mount that is leaving, unwanted, or
// wanted in another form than the one whose outcome is unknown.
func (c *chooser) unmount(w state.Want, v state.Volume, f Facts) {
	for _, pod := range byUID(v.Mounts) {
		m, op := v.Mounts[pod], Op{Kind: Unpublish, Pod: pod}
		wm, wanted := w.Pods[pod]
		switch {
		case m.Phase == state.Absent:
		case m.Phase == state.Leaving:
			c.propose(op, m.Failed)
		case !wanted:
			c.remove(op, m.Fact, []state.PodUID{pod}, f)
		case c.dead.Known && !used(v, m) && f.Keep[pod] == "":
			c.redo(op, f)
		case !used(v, m) && (!m.MountSpec.Equal(wm.MountSpec) || reversed(w, v) || c.releasesExclusive(w, v, pod)):
			if why := cmp.Or(reasonFor(Kept, f.Keep[pod]), c.doubt.unlooked()); why.code != "" {
				c.hold(op, why, time.Time{})
				continue
			}
			c.propose(op, nil)
		}
	}
}

// remove offers op, which takes fact away, unless that must not be begun for
// the sake of any of pods (rule 5). A removal once begun goes on (rule 2).
func (c *chooser) remove(op Op, fact state.Fact, pods []state.PodUID, f Facts) {
	if why := c.doubt.below(); why.code != "" && op.Kind != Unpublish {
		c.hold(op, why, time.Time{})
		return
	}
	if fact.Phase == state.Leaving {
		c.propose(op, fact.Failed)
		return
	}
	if !f.Synced {
		c.hold(op, why{NotSynced, reasonSources}, time.Time{})
		return
	}
	for _, pod := range pods {
		if why := reasonFor(Kept, f.Keep[pod]); why.code != "" {
			c.hold(op, why, time.Time{})
			return
		}
	}
	c.propose(op, nil)
}

// keepers returns the pods that may still need a stage or an attachment although none
// of them has it mounted: those that it was begun for. Where other pods want the volume
// in another form there are none, since none of these pods has a mount to lose.
func keepers(w state.Want, v state.Volume) []state.PodUID {
	if len(w.Pods) > 0 {
		return nil
	}
	return v.For
}

// mustGo reports whether fact (the stage or the attachment) has to go.
func mustGo(fact state.Fact, w state.Want, v state.Volume) bool {
	return fact.Phase == state.Leaving ||
		fact.Phase != state.Absent && (len(w.Pods) == 0 || reversed(w, v))
}

// keepsAttach: a change of the wish does not undo an attachment, which is made of driver and handle alone.
func keepsAttach(w state.Want, v state.Volume) bool {
	return v.Attach.Phase == state.Present && len(w.Pods) > 0
}

// reversed reports whether what was begun has to be undone because the wish
// says something else now and no pod uses the volume as it was begun. A
// repeated call must repeat its request, so the way to another is through absent.
func reversed(w state.Want, v state.Volume) bool {
	if len(w.Pods) == 0 || v.Spec.Equal(w.Spec) && !reattached(w, v) {
		return false
	}
	for _, m := range v.Mounts {
		if used(v, m) {
			return false
		}
	}
	return true
}

// reattached reports whether the cluster has detached the volume and attached it
// anew since the record was begun: what is staged may be of a device that is
// gone, or another volume's now.
func reattached(w state.Want, v state.Volume) bool {
	was, is := v.Spec.Attachment, w.Spec.Attachment
	return was != is && was != "" && is != "" || !maps.Equal(v.Spec.PublishContext, w.Spec.PublishContext)
}

// used reports whether containers may use the mount as it was asked for: it is
// present, or it was in this boot of the node and is said to be entering only
// because the journal or the mount table lost it. It is made again as it was and
// not taken away because the wish says something else now (rule 5).
// What is made without a mount shows by being there.
func used(v state.Volume, m state.Mount) bool {
	return m.Phase == state.Present || m.Phase == state.Entering && seenMade(v, m.Seen)
}

func seenMade(v state.Volume, s state.Seen) bool {
	return s.Mounted || v.Spec.Builtin && s.Exists
}

// build offers the steps that make the volume, each only when what it stands on is present (rule 1).
func (c *chooser) build(w state.Want, v state.Volume) {
	switch {
	case v.Attach.Phase == state.Leaving || v.Stage.Phase == state.Leaving:
		return // after a crash, with a mount above that has to leave first
	case c.driver.Full != "" && v.Clear():
		c.hold(opening(v), why{NoRoom, c.driver.Full}, time.Time{})
		return
	case (v.Needs.Attach && v.Attach.Phase != state.Present || v.Needs.Stage && v.Stage.Phase != state.Present) &&
		c.doubt.begin(v).code != "":
		c.hold(opening(v), c.doubt.begin(v), time.Time{})
		return
	case v.Needs.Attach && v.Attach.Phase != state.Present:
		c.make(Op{Kind: Attach}, reasonFor(WishHeld, w.Hold), v.Attach.Failed)
		return
	case v.Needs.Stage && v.Stage.Phase != state.Present:
		c.make(Op{Kind: Stage}, reasonFor(WishHeld, w.Hold), v.Stage.Failed)
		return
	}
	for _, pod := range byUID(w.Pods) {
		m, wm := v.Mounts[pod], w.Pods[pod]
		switch {
		case m.Phase == state.Leaving:
		case m.Phase == state.Present:
			c.keep(pod, m, wm)
		case m.Phase == state.Entering && !used(v, m) && !m.MountSpec.Equal(wm.MountSpec):
		case c.dead.Known && v.Needs.Stage:
			c.hold(Op{Kind: Publish, Pod: pod}, why{DeadMount, reasonDead}, time.Time{}) // it would be handed on
		default:
			c.make(Op{Kind: Publish, Pod: pod, Revision: wm.Revision}, c.publishHold(w, v, pod), m.Failed)
		}
	}
	c.expand(w, v)
}

// opening is the step that a volume begins with.
func opening(v state.Volume) Op {
	switch {
	case v.Needs.Attach:
		return Op{Kind: Attach}
	case v.Needs.Stage:
		return Op{Kind: Stage}
	default:
		return Op{Kind: Publish}
	}
}

// keep offers what a mount that is present needs to stay as wanted.
func (c *chooser) keep(pod state.PodUID, m state.Mount, wm state.WantMount) {
	switch {
	// what it has ends while its driver is away
	case m.Revision != wm.Revision || due(m, wm, c.now) || !c.driver.Up && !m.RenewAt.IsZero():
		c.propose(Op{Kind: Republish, Pod: pod, Revision: wm.Revision}, m.Failed)
	case !m.MountSpec.Equal(wm.MountSpec):
		c.hold(Op{Kind: Publish, Pod: pod}, why{OtherForm, reasonOtherwise}, time.Time{})
	}
	if c.op.Kind == None {
		c.wake(m.RenewAt)
	}
}

func (c *chooser) make(op Op, hold why, failed *state.Retry) {
	if hold.code != "" {
		c.hold(op, hold, time.Time{})
		return
	}
	c.propose(op, failed)
}

// publishHold says why the volume cannot be published to pod yet.
func (c *chooser) publishHold(w state.Want, v state.Volume, pod state.PodUID) why {
	if w.Hold != "" {
		return why{WishHeld, w.Hold}
	}
	if reattached(w, v) && !used(v, v.Mounts[pod]) {
		return why{Reattached, reasonReattached}
	}
	if exclusive(w, v) {
		for _, other := range byUID(v.Mounts) {
			if o := v.Mounts[other]; other != pod && o.Phase != state.Absent {
				return why{InUse, reasonInUse + o.Pod.Namespace + "/" + o.Pod.Name}
			}
		}
	}
	if why := c.doubt.publish(v, pod, exclusive(w, v)); why.code != "" {
		return why
	}
	_, made := c.doubt.Made[pod]
	again := made || used(v, v.Mounts[pod])
	group := groupOf(w.Pods[pod].MountSpec)
	if !again && c.driver.MountGroup && group != "" && group != v.Spec.MountGroup { // else as it was
		return why{OtherGroup, "the driver gives the volume one group for all its pods, and that is " +
			cmp.Or(v.Spec.MountGroup, "none") + " for those that have it; this pod's fsGroup is " + group}
	}
	if !again && w.Pods[pod].SELinuxLabel != v.Spec.SELinuxLabel {
		return why{OtherLabel, "conflicting SELinux labels of the volume: it is mounted with " +
			cmp.Or(v.Spec.SELinuxLabel, "none") + " for those that have it; this pod's is " +
			cmp.Or(w.Pods[pod].SELinuxLabel, "none")}
	}
	return reasonFor(WishHeld, w.Pods[pod].Hold)
}

// renew lets the record follow the wish where nothing holds it to what was
// said before: nothing is staged or mounted, or may be.
func renew(v state.Volume, w state.Want, f Facts) state.Volume {
	if len(w.Pods) == 0 || v.Stage.Phase != state.Absent || !v.Unmounted() {
		return v
	}
	if v.Attach.Phase == state.Entering && !v.Spec.Equal(w.Spec) {
		return v // to be detached first
	}
	persistent := !w.Spec.Ephemeral && !w.Spec.Builtin
	v.Spec = w.Spec
	// Of the built-in kinds those have a stage whose wish says where.
	v.Needs.Stage = (persistent || w.Spec.Builtin && w.Spec.StagePath != "") && f.Driver.Stage
	if v.Attach.Phase == state.Absent {
		v.Needs.Attach = persistent && f.Driver.Attach && !w.Spec.NoAttach
	}
	v.SizeBytes = w.HaveBytes
	if v.SizeBytes == 0 {
		v.SizeBytes = w.SizeBytes
	}
	return v
}

// keepShared returns w with the group and the label that the volume has for all of its
// pods, although each pod asks for its own. An attachment that is awaited, for one because it
// was not read since the daemon began, says nothing against what was made of it: that
// stays until the volume is attached anew, or not wanted. Nor does a CSIDriver that needs
// none any more: what was begun as attached is in use, and stays attached, until it is unstaged.
func keepShared(w state.Want, v state.Volume, f Facts) state.Want {
	if len(w.Pods) == 0 {
		return w
	}
	w = untilStaged(w, v, f)
	if f.Doubt.keeps(w, v) {
		w.Spec = v.Spec
		return w
	}
	has := cmp.Or(v.Spec, w.Spec)
	if (w.Hold != "" || w.Spec.NoAttach && v.InUse()) && w.Spec.Attachment == "" && has.Attachment != "" {
		spec := *w.Spec
		spec.Attachment, spec.PublishContext = has.Attachment, has.PublishContext
		w.Spec = &spec
	}
	group, label := groupFor(w.Pods, has.MountGroup, f), labelFor(w.Pods, has.SELinuxLabel)
	if w.Spec.MountGroup != group || w.Spec.SELinuxLabel != label {
		spec := *w.Spec
		spec.MountGroup, spec.SELinuxLabel = group, label
		w.Spec = &spec
	}
	return w
}

// groupFor returns the group that the driver itself is to give the volume (CSI 1.13,
// volume_mount_group): one for the stage and all pods, since a volume is not to be
// published with different capabilities. It is has, if a pod asks for it, else that
// of the first pod by uid that asks for one.
func groupFor(wanted map[state.PodUID]state.WantMount, has string, f Facts) (group string) {
	switch {
	case !f.Driver.Up:
		return has // what the driver can do is not known
	case !f.Driver.MountGroup:
		return ""
	}
	for _, pod := range byUID(wanted) {
		asked := groupOf(wanted[pod].MountSpec)
		if asked != "" && asked == has {
			return asked
		}
		group = cmp.Or(group, asked)
	}
	return group
}
