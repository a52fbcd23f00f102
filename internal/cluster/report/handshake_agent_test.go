package report

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	volumeID   = state.VolumeID("d^h")
	volumeName = corev1.UniqueVolumeName("kubernetes.io/csi/d^h")
	podUID     = state.PodUID("p")
)

// rules are the program's decisions, some with one of them broken.
type rules struct {
	see  func(*inUse, *corev1.Node)
	next func(*inUse, []state.InUse) step
	used func(state.Want, state.Volume) string
	held func(state.Want, state.VolumeID, bool) state.Want
	// claims: the first write of a process changes the Node. versions: a write is for
	// one version of the Node. settles: the reporter waits for the manager. forgets: an attachment
	// is forgotten when its volume enters or leaves volumesAttached, and used only if the volume
	// was listed when its read began. discards: an answer from before that is dropped.
	claims, versions, settles, forgets, discards bool

	// looks and kinds cache the decisions, by their inputs.
	looks map[agent]agent
	kinds map[agent]plan.Kind
}

// look is agent.report, cached.
func (r *rules) look(a *agent) {
	then, known := r.looks[*a]
	if !known {
		then = *a
		then.report(r)
		r.looks[*a] = then
	}
	*a = then
}

// calls returns the kind of agent.call, cached by the inputs of the manager's part.
func (r *rules) calls(a agent) plan.Kind {
	of := agent{pod: a.pod, knows: a.knows, flipped: a.flipped, reported: a.reported, phase: a.phase, free: a.free}
	kind, known := r.kinds[of]
	if !known {
		op, _, _ := of.call(r)
		kind = op.Kind
		r.kinds[of] = kind
	}
	return kind
}

func program() *rules {
	return &rules{
		looks: map[agent]agent{}, kinds: map[agent]plan.Kind{},
		see: (*inUse).see, next: (*inUse).next, used: plan.AttachedAs, held: plan.HoldUntilListed,
		claims: true, versions: true, settles: true, forgets: true, discards: true,
	}
}

// snapshot is a Node as a process knows it; version 0 means none.
type snapshot struct {
	inUse, attached bool
	version         uint8
}

func list(there bool) []corev1.UniqueVolumeName {
	if there {
		return []corev1.UniqueVolumeName{volumeName}
	}
	return nil
}

func (s snapshot) node() *corev1.Node {
	if s.version == 0 {
		return nil
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: strconv.Itoa(int(s.version))}}
	n.Status.VolumesInUse = list(s.inUse)
	if s.attached {
		n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: volumeName}}
	}
	return n
}

func snapshotOf(n *corev1.Node) snapshot {
	if n == nil {
		return snapshot{}
	}
	version, _ := strconv.Atoi(n.ResourceVersion)
	return snapshot{len(n.Status.VolumesInUse) > 0, len(n.Status.VolumesAttached) > 0, uint8(version)} //nolint:gosec // few
}

// write is a patch of the Node in flight; version 0 means none.
type write struct {
	list, first, owned bool // owned: the process waits for its answer
	version            uint8
}

// The states of an agent's reporter.
const (
	idle uint8 = iota
	settling
	writing
	answered
	refused
)

// What a process knows of the attachment of its volume.
const (
	unread uint8 = iota
	notAttached
	present // its context is the present one
	past    // its context is that of an earlier attachment
)

// agent is csi-volmgr on one node.
type agent struct {
	up       bool
	pod      bool  // from the watch of pods
	knows    uint8 // as read from the VolumeAttachment
	late     uint8 // an answer about it on the way
	missed   bool  // volumesAttached has changed since the watch told
	flipped  bool  // as known from the CSIDriver
	watched  snapshot
	doing    uint8
	inFlight [2]write
	answer   snapshot
	node     snapshot
	claimed  bool
	unsure   bool // a list has no answer yet,
	sent     bool // and this is its content
	marked   bool // passed to the manager
	reported bool // and taken over by it
	phase    state.Phase
	free     bool // the record says that no controller attaches
	op       plan.Kind
}

func (a *agent) may() bool { return a.phase != state.Absent || a.op != plan.None }

func (a *agent) want() state.Want {
	if !a.pod {
		return state.Want{}
	}
	w := state.Want{Spec: a.spec(a.flipped), Pods: map[state.PodUID]state.WantMount{podUID: {MountSpec: state.MountSpec{Target: "/t"}}}}
	if !a.flipped && a.knows < present {
		w.Hold = "waiting for the VolumeAttachment"
	}
	return w
}

func (a *agent) spec(noAttach bool) *state.Spec {
	return &state.Spec{Driver: "d", Handle: "h", Mode: state.Filesystem, NoAttach: noAttach}
}

func (a *agent) record() state.Volume {
	v := state.Volume{ID: volumeID}
	if a.phase != state.Absent {
		v.Spec = a.spec(a.free)
		v.Mounts = map[state.PodUID]state.Mount{podUID: {MountSpec: state.MountSpec{Target: "/t"}, Fact: state.Fact{Phase: a.phase}}}
	}
	return v
}

func (a *agent) used(r *rules) []state.InUse {
	if name := r.used(a.want(), a.record()); name != "" {
		return []state.InUse{{ID: volumeID, Name: name}}
	}
	return nil
}

// report is one round of Reporter.reportInUse.
func (a *agent) report(r *rules) {
	w := inUse{node: a.node.node()} // see sets watched
	if a.claimed {
		w.uid = "u"
	}
	if a.unsure {
		sent := list(a.sent)
		w.unanswered = &sent
	}
	if a.marked {
		w.marked = []state.VolumeID{volumeID}
	}
	r.see(&w, a.watched.node())
	s := r.next(&w, a.used(r))
	a.node, a.marked = snapshotOf(w.node), len(s.mark) > 0
	switch {
	case s.settle && r.settles:
		a.doing = settling
	case s.write:
		for i := range a.inFlight {
			if a.inFlight[i].version == 0 {
				a.inFlight[i] = write{list: len(s.list) > 0, first: r.claims && w.uid == "", owned: true, version: a.node.version}
				a.unsure, a.sent, a.doing = true, len(s.list) > 0, writing
				return
			}
		}
	}
}

// call is the manager's next operation for the volume.
func (a *agent) call(r *rules) (plan.Op, plan.Facts, state.Want) {
	f := plan.Facts{Driver: plan.DriverFacts{Up: true}, Synced: true}
	w := r.held(a.want(), volumeID, a.reported)
	op, _ := plan.Next(w, a.record(), f, time.Unix(1, 0))
	return op, f, w
}

// begin starts the call: the journal has its possible effects.
func (a *agent) begin(r *rules) {
	op, f, w := a.call(r)
	if a.phase == state.Absent {
		a.free = w.Spec.NoAttach
	}
	v := plan.Begin(a.record(), op, w, f)
	a.phase, a.op = v.Mounts[podUID].Phase, op.Kind
}

// end completes the call.
func (a *agent) end() {
	v := plan.Complete(a.record(), plan.Op{Kind: a.op, Pod: podUID}, plan.Result{}, time.Unix(1, 0))
	a.phase, a.op = v.Mounts[podUID].Phase, plan.None
	if a.phase == state.Absent {
		a.free = false
	}
}

// read returns what a read of c says of the attachment. It is unread if it is of no use.
func (a *agent) read(r *rules, c attachment) uint8 {
	switch {
	case !c.there || !c.ready || c.deleting:
		return notAttached
	case r.forgets && !a.watched.attached:
		return unread
	}
	return present
}

// watch takes in the newest Node, after those between.
func (a *agent) watch(r *rules, n snapshot) {
	a.watched = n
	if a.missed && r.forgets {
		a.knows = unread
	}
	if a.missed && r.discards {
		a.late = unread
	}
	a.missed = false
}

// detached makes what is known of the attachment that of an earlier one.
func (a *agent) detached() {
	for _, known := range []*uint8{&a.knows, &a.late} {
		if *known == present {
			*known = past
		}
	}
}

// crash ends the process. The writes in flight go on without it.
func (a *agent) crash() {
	inFlight := a.inFlight
	for i := range inFlight {
		inFlight[i].owned = false
	}
	*a = agent{watched: a.watched, missed: a.missed, inFlight: inFlight, phase: a.phase, free: a.free, flipped: a.flipped}
}
