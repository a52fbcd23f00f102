package plan

import (
	"cmp"
	"maps"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Facts is what Next needs besides the wish and the record.
type Facts struct {
	Driver DriverFacts
	// Synced: every source has listed its pods since the daemon started.
	Synced bool
	// Keep says why the mount of a pod must stay; see [Keep]. It is for the pods that the
	// record names and that do not want the volume; without an entry the mount is proven
	// unwanted. For a pod that wants the volume in another form than the recorded one,
	// an entry says why the pod may be using that.
	Keep map[state.PodUID]string
	// Ladder lists the steps against an unmount of the volume that keeps failing.
	Ladder Ladder
	// Order is the removal, with its step, that an operator ordered; zero is none.
	Order Op
	// Dead is about the server of the file system that is staged, or was last published.
	Dead Dead
	// Doubt is what may exist of the volume on the host without a record.
	Doubt Doubt
	// Taken are the other volumes that are, or may be, at the volume's paths, by pod; that of ""
	// is at the stage path.
	Taken map[state.PodUID]state.VolumeID
}

// DriverFacts is what is known of the volume's driver.
type DriverFacts struct {
	Up bool
	// Why says why it is not up.
	Why string
	// Full says why the volume must not be begun here: the driver already serves its
	// maximum on this node, or the volume is not accessible from it; "" if it may.
	Full string
	// Lacks says which program the driver needs before it can begin a volume, and is not installed here; "" if none.
	Lacks string
	// Attach, Stage, Expand and MountGroup are its abilities, meaningful while it is up.
	Attach, Stage, Expand, MountGroup bool
	// Offline: it expands volumes only while no pod has them.
	Offline bool
	// Controller is set if the driver's Controller service has an endpoint of its own: why it
	// cannot be called, "" if it can.
	Controller *string
}

// The texts of [Held.Reason].
const (
	reasonSources = "nothing is removed until every source of pods has listed its pods"
	reasonFinal   = "the driver's answer forbids a retry until the driver registers again, " +
		"what pods want changes, or the volume is staged again"
	reasonBackoff   = "waiting to try again after a failure"
	reasonOtherwise = "the pod now asks for a different mount; the current one stays until the pod's containers " +
		"have ended"
	reasonReattached = "the volume was detached and attached again while pods have it mounted; it is staged again once " +
		"they are gone"
	reasonOffline = "the driver expands a volume only while no pod has it: this one grows when its pods are gone " +
		"and it is staged again"
	reasonROSize = "the volume is mounted read-only, so it cannot be expanded here"
)

// Next returns the one call that moves v towards w, or the reason why no call is made. If
// the volume is as wanted, the Op is zero and Held has no Code.
//
// Removals come before calls that make something. A step that has to wait does not delay
// a step that does not depend on it.
func Next(w state.Want, v state.Volume, f Facts, now time.Time) (Op, Held) {
	w = keepShared(w, v, f)
	v = renew(v, w, f)
	v, _ = Resize(v, w, f)
	c := chooser{Facts: f, now: now}
	c.unmount(w, v)
	switch {
	case v.Unmounted() && mustGo(v.Stage, w, v):
		c.remove(Op{Kind: Unstage}, v.Stage, keepers(w, v))
	case v.Unmounted() && v.Stage.Phase != state.Absent && c.Dead.Known:
		c.removeDead(Op{Kind: Unstage})
	case v.Unmounted() && v.Stage.Phase == state.Absent && mustGo(v.Attach, w, v) && !keepsAttach(w, v):
		c.remove(Op{Kind: Detach}, v.Attach, keepers(w, v))
	case len(w.Pods) > 0:
		c.build(w, v)
	}
	return c.op, c.held
}

// chooser picks the first proposed call that may be made. If none may, it keeps the first
// reason.
type chooser struct {
	Facts
	now  time.Time
	op   Op
	held Held
}

// hold notes that op waits for the reason why, until the time until if that is set.
func (c *chooser) hold(op Op, why reason, until time.Time) {
	if c.held.Code == "" {
		c.held.Step, c.held.Pod, c.held.Code, c.held.Reason = op.Kind, op.Pod, why.code, why.text
		c.held.Operator, c.held.Dead = why.code == Unrecorded, why.code == DeadMount
	}
	if !until.IsZero() && (c.held.Until.IsZero() || until.Before(c.held.Until)) {
		c.held.Until = until
	}
}

// propose picks op unless an earlier proposal was picked or op has to wait, for its driver
// or for the pause after the failure failed.
func (c *chooser) propose(op Op, failed *state.Retry) {
	op, r := c.escalate(op, failed.Value())
	switch {
	case c.op.Kind != None:
	case c.Driver.unreached(op.Kind).code != "":
		c.hold(op, c.Driver.unreached(op.Kind), time.Time{})
	case r.Final:
		c.hold(op, reason{Final, reasonFinal}, time.Time{})
	case r.NotBefore.After(c.now):
		c.hold(op, reason{Pause, reasonBackoff}, r.NotBefore)
	default:
		c.op, c.held = op, Held{}
	}
}

// unmount proposes the removal of every mount that is leaving or unwanted, and of every
// mount with an unknown outcome that is dead or now wanted in another form.
func (c *chooser) unmount(w state.Want, v state.Volume) {
	for _, pod := range byUID(v.Mounts) {
		m, op := v.Mounts[pod], Op{Kind: Unpublish, Pod: pod}
		wm, wanted := w.Pods[pod]
		switch {
		case m.Phase == state.Absent:
		case m.Phase == state.Leaving:
			c.propose(op, m.Failed)
		case !wanted:
			c.remove(op, m.Fact, []state.PodUID{pod})
		case c.Dead.Known && !used(v, m) && c.Keep[pod] == "":
			c.removeDead(op)
		case !used(v, m) && (!m.MountSpec.Equal(wm.MountSpec) || mustUndo(w, v) || c.releasesExclusive(w, v, pod)):
			if why := cmp.Or(reasonIf(Kept, c.Keep[pod]), c.Doubt.blocksReplacement()); why.code != "" {
				c.hold(op, why, time.Time{})
				continue
			}
			c.propose(op, nil)
		}
	}
}

// remove proposes op, the removal of fact, unless one of pods may still need it (rule 5).
// A removal that has begun goes on (rule 2).
func (c *chooser) remove(op Op, fact state.Fact, pods []state.PodUID) {
	if why := c.Doubt.blocksRemoval(op.Kind); why.code != "" && op.Kind != Unpublish {
		c.hold(op, why, time.Time{})
		return
	}
	if fact.Phase == state.Leaving {
		c.propose(op, fact.Failed)
		return
	}
	if !c.Synced {
		c.hold(op, reason{NotSynced, reasonSources}, time.Time{})
		return
	}
	for _, pod := range pods {
		if why := reasonIf(Kept, c.Keep[pod]); why.code != "" {
			c.hold(op, why, time.Time{})
			return
		}
	}
	c.propose(op, nil)
}

// keepers returns the pods that may still need a stage or an attachment although none of
// them has the volume mounted: those for which it was begun. There are none if other pods
// want the volume, since these pods have no mount to lose.
func keepers(w state.Want, v state.Volume) []state.PodUID {
	if len(w.Pods) > 0 {
		return nil
	}
	return v.For
}

// mustGo reports whether fact, the stage or the attachment, has to be removed.
func mustGo(fact state.Fact, w state.Want, v state.Volume) bool {
	return fact.Phase == state.Leaving ||
		fact.Phase != state.Absent && (len(w.Pods) == 0 || mustUndo(w, v))
}

// keepsAttach reports whether the attachment stays although the wish has changed: it depends
// on driver and handle alone.
func keepsAttach(w state.Want, v state.Volume) bool {
	return v.Attach.Phase == state.Present && len(w.Pods) > 0
}

// mustUndo reports whether the volume as it was begun has to be undone because the wish
// has changed and no pod uses it. A repeated call must repeat its request, so a call with
// another request can be made only after the fact is absent.
func mustUndo(w state.Want, v state.Volume) bool {
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

// reattached reports whether the cluster has detached the volume and attached it again
// since the record was begun: the device that is staged may be gone, or belong to
// another volume now.
func reattached(w state.Want, v state.Volume) bool {
	was, is := v.Spec.Attachment, w.Spec.Attachment
	return was != is && was != "" && is != "" || !maps.Equal(v.Spec.PublishContext, w.Spec.PublishContext)
}

// used reports whether containers may use the mount in its recorded form: it is present,
// or it was present in this boot of the node and is entering only because the journal or
// the mount table lost it. Such a mount is made again in that form, and is not removed
// because the wish has changed (rule 5).
func used(v state.Volume, m state.Mount) bool {
	return m.Phase == state.Present || m.Phase == state.Entering && seenMade(v, m.Seen)
}

// seenMade reports whether s shows an effect of Publish. Built-in kinds may make a plain
// directory, so there it is enough that the path exists.
func seenMade(v state.Volume, s state.Seen) bool {
	return s.Mounted || v.Spec.Builtin && s.Exists
}

// build proposes the steps that make the volume, each only when the fact that it depends on
// is present (rule 1).
func (c *chooser) build(w state.Want, v state.Volume) {
	switch {
	case v.Attach.Phase == state.Leaving || v.Stage.Phase == state.Leaving:
		return // possible after a crash, with a mount above that has to leave first
	case c.Driver.Full != "" && v.Clear():
		c.hold(firstStep(v), reason{NoRoom, c.Driver.Full}, time.Time{})
		return
	case c.Driver.Lacks != "" && v.Clear(): // what was begun goes on: its calls say what they lack
		c.hold(firstStep(v), reason{NoProgram, c.Driver.Lacks}, time.Time{})
		return
	case (v.Needs.Attach && v.Attach.Phase != state.Present || v.Needs.Stage && v.Stage.Phase != state.Present) &&
		c.Doubt.blocksBegin(v).code != "":
		c.hold(firstStep(v), c.Doubt.blocksBegin(v), time.Time{})
		return
	case v.Needs.Attach && v.Attach.Phase != state.Present:
		c.make(Op{Kind: Attach}, reasonIf(WishHeld, w.Hold), v.Attach.Failed)
		return
	case v.Needs.Stage && v.Stage.Phase != state.Present:
		c.make(Op{Kind: Stage}, cmp.Or(reasonIf(WishHeld, w.Hold), c.placeTaken("", v.Stage)), v.Stage.Failed)
		return
	}
	for _, pod := range byUID(w.Pods) {
		m, wm := v.Mounts[pod], w.Pods[pod]
		switch {
		case m.Phase == state.Leaving:
		case m.Phase == state.Present:
			c.maintain(pod, m, wm)
		case m.Phase == state.Entering && !used(v, m) && !m.MountSpec.Equal(wm.MountSpec):
		case c.Dead.Known && v.Needs.Stage:
			c.hold(Op{Kind: Publish, Pod: pod}, reason{DeadMount, reasonDead}, time.Time{}) // the new mount would be dead too
		default:
			c.make(Op{Kind: Publish, Pod: pod, Revision: wm.Revision}, c.publishHold(w, v, pod), m.Failed)
		}
	}
	c.expand(w, v)
}

// firstStep returns the first step of a volume.
func firstStep(v state.Volume) Op {
	switch {
	case v.Needs.Attach:
		return Op{Kind: Attach}
	case v.Needs.Stage:
		return Op{Kind: Stage}
	default:
		return Op{Kind: Publish}
	}
}

// maintain proposes the call that a present mount needs to stay as wanted, if it needs one.
func (c *chooser) maintain(pod state.PodUID, m state.Mount, wm state.WantMount) {
	switch {
	// a mount that expires is reported as waiting while its driver is down
	case m.Revision != wm.Revision || renewalDue(m, wm, c.now) || !c.Driver.Up && !m.RenewAt.IsZero():
		c.propose(Op{Kind: Republish, Pod: pod, Revision: wm.Revision}, m.Failed)
	case !m.MountSpec.Equal(wm.MountSpec):
		c.hold(Op{Kind: Publish, Pod: pod}, reason{OtherForm, reasonOtherwise}, time.Time{})
	}
	if c.op.Kind == None {
		c.wakeAt(m.RenewAt)
	}
}

// make proposes op unless hold says that it has to wait.
func (c *chooser) make(op Op, hold reason, failed *state.Retry) {
	if hold.code != "" {
		c.hold(op, hold, time.Time{})
		return
	}
	c.propose(op, failed)
}

// publishHold says why the volume cannot be published to pod yet.
func (c *chooser) publishHold(w state.Want, v state.Volume, pod state.PodUID) reason {
	if w.Hold != "" {
		return reason{WishHeld, w.Hold}
	}
	if why := c.placeTaken(pod, v.Mounts[pod].Fact); why.code != "" {
		return why
	}
	if reattached(w, v) && !used(v, v.Mounts[pod]) {
		return reason{Reattached, reasonReattached}
	}
	if exclusive(w, v) {
		for _, other := range byUID(v.Mounts) {
			if o := v.Mounts[other]; other != pod && o.Phase != state.Absent {
				return reason{InUse, reasonInUse + o.Pod.Namespace + "/" + o.Pod.Name}
			}
		}
	}
	if why := c.Doubt.blocksPublish(v, pod, exclusive(w, v)); why.code != "" {
		return why
	}
	_, made := c.Doubt.Made[pod]
	again := made || used(v, v.Mounts[pod])
	group := groupOf(w.Pods[pod].MountSpec)
	if !again && c.Driver.MountGroup && group != "" && group != v.Spec.MountGroup {
		return reason{OtherGroup, "the driver gives the volume one group for all its pods, and that is " +
			cmp.Or(v.Spec.MountGroup, "none") + " for those that have it; this pod's fsGroup is " + group}
	}
	if !again && w.Pods[pod].SELinuxLabel != v.Spec.SELinuxLabel {
		return reason{OtherLabel, "conflicting SELinux labels of volume " + cmp.Or(v.Spec.Name, v.Spec.Handle) +
			": it is mounted with " + cmp.Or(v.Spec.SELinuxLabel, "none") + " for those that have it; this pod's is " +
			cmp.Or(w.Pods[pod].SELinuxLabel, "none")}
	}
	return reasonIf(WishHeld, w.Pods[pod].Hold)
}

// renew updates the record from the wish. It does so only while neither a stage nor a mount
// exists or may exist, since those have to keep the request with which they were begun.
func renew(v state.Volume, w state.Want, f Facts) state.Volume {
	if len(w.Pods) == 0 || v.Stage.Phase != state.Absent || !v.Unmounted() {
		return v
	}
	if v.Attach.Phase == state.Entering && !v.Spec.Equal(w.Spec) {
		return v // it has to be detached first
	}
	persistent := !w.Spec.Ephemeral && !w.Spec.Builtin
	v.Spec = w.Spec
	// A volume of a built-in kind is staged if its wish has a stage path.
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

// keepShared returns w with the parts that all pods of the volume share. These are the one
// group and the one label, although each pod asks for its own, and the attachment: while w
// has none, because it has not been read since the daemon started or because the CSIDriver
// no longer requires one, a volume that was begun as attached keeps its attachment until
// it is attached again, unstaged, or unwanted.
func keepShared(w state.Want, v state.Volume, f Facts) state.Want {
	if len(w.Pods) == 0 {
		return w
	}
	w = holdOfflineGrowth(w, v, f)
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
