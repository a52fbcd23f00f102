package server

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/stats"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Facts are the inputs of an explanation. It is a value.
type Facts struct {
	Pods              []manager.PodStatus
	Volumes           []manager.VolumeStatus
	Drivers           []manager.DriverStatus
	Controllers       map[state.DriverName]ControllerStatus
	Claims            []ClaimStatus
	PersistentVolumes []PVStatus
	Snapshots         []SnapshotStatus
	Groups            []GroupSnapshotStatus
	Problems          []Problem
	Sockets           []SocketStatus
	Stats             []stats.Status
	// Named are the named volumes that the explanation is about.
	Named []NamedVolume
	// NotReady lists what the daemon has not read yet.
	NotReady []string
	// Classes are the names of the StorageClasses.
	Classes []string
	// Ends has the words that end the pods of other origins.
	Ends Ends
	// Cluster: an API server's cluster makes the snapshots of its claims.
	Cluster bool
	Now     time.Time
}

// Verdicts, from best to worst. An explanation of several volumes has the worst verdict
// among them.
const (
	Fine    = "fine"    // as wanted
	Working = "working" // a call is in flight, or has failed only once or twice
	Waiting = "waiting" // waits for an event that the lines name
	Stuck   = "stuck"   // probably a person has to act
	Unknown = "unknown" // no object of that name is known
)

var verdicts = []string{Fine, Working, Waiting, Stuck, Unknown}

// Explanation is one causal chain: what is wanted, how far it is, the current step,
// what blocks it, what does not, what happens next, and what a person can do.
type Explanation struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Verdict is fine, working, waiting, stuck or unknown.
	Verdict string `json:"verdict"`
	Lines   []Line `json:"lines"`
}

// Line is one link of the chain.
type Line struct {
	Label string `json:"label"`
	Text  string `json:"text"`
}

// String renders an explanation for a terminal, with a final newline.
func (e Explanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: %s\n", e.Kind, oneLine(e.Name), e.Verdict)
	for _, l := range e.Lines {
		fmt.Fprintf(&b, "  %-12s %s\n", l.Label, oneLine(l.Text))
	}
	return b.String()
}

// oneLine replaces control characters and line breaks in a driver's or a file's text by
// spaces, so that it can neither break the page nor control the terminal. It also
// replaces no-break spaces: depending on its build, protobuf puts one or a space into
// its errors.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r == 0xa0 || !unicode.IsGraphic(r) { // a control or format character, such as a change of the writing direction
			return ' '
		}
		return r
	}, s)
}

func (e *Explanation) add(label, format string, args ...any) {
	e.Lines = append(e.Lines, Line{Label: label, Text: fmt.Sprintf(format, args...)})
}

// worsen sets the verdict unless the current one is worse.
func (e *Explanation) worsen(verdict string) {
	if slices.Index(verdicts, verdict) > slices.Index(verdicts, e.Verdict) {
		e.Verdict = verdict
	}
}

// Explain explains the state of a pod, claim, snapshot or group snapshot
// ("namespace/name"), a volume (see [FindVolume]) or a driver. It explains an unknown
// name too; the error, which wraps ErrInvalid, is for an unknown kind or an ambiguous
// name.
func Explain(f Facts, kind, name string) (Explanation, error) {
	e := Explanation{Kind: kind, Name: name, Verdict: Fine}
	var err error
	switch kind {
	case "pod":
		f.explainPod(&e)
	case "pvc":
		f.explainPVC(&e)
	case "snapshot":
		f.explainSnapshot(&e)
	case "groupsnapshot":
		f.explainGroup(&e)
	case "volume":
		err = f.explainVolume(&e)
	case "driver":
		f.explainDriver(&e)
	default:
		err = fmt.Errorf("%w: explain %q: must be pod, pvc, snapshot, groupsnapshot, volume or driver", ErrInvalid, kind)
	}
	return e, err
}

func (f Facts) explainPod(e *Explanation) {
	ns, name, _ := strings.Cut(e.Name, "/")
	p, ok := podNamed(f.Pods, ns, name)
	if !ok {
		f.unknown(e)
		for _, other := range f.Pods {
			if other.Pod.Name == name {
				e.add("you can", "name the right namespace: there is a pod %s in -n %s", name, other.Pod.Namespace)
			}
		}
		return
	}
	mounted := 0
	for _, v := range p.Volumes {
		if v.Mounted {
			mounted++
		}
	}
	switch {
	case hasEnded(p):
		e.add("wanted", "nothing: its status.phase says that its containers have ended (pod uid %s)", p.Pod.UID)
		if !f.Cluster {
			e.add("you can", "%s", AdviceEnded)
		}
	case p.Listed:
		e.add("wanted", "%s, %d mounted (pod uid %s)", count(len(p.Volumes), "volume"), mounted, p.Pod.UID)
	default:
		e.add("wanted", "nothing: the pod is gone, and its volumes are being unmounted (pod uid %s)", p.Pod.UID)
	}
	for _, v := range p.Volumes {
		f.explainPodVolume(e, p.Pod, v)
	}
	f.explainNamed(e)
}

// AdviceEnded is the advice on an applied pod that was written out of a cluster after its end.
const AdviceEnded = "remove status from the manifest and apply it again, if the pod is to run here"

// hasEnded reports whether the pod's source says that its containers have ended for good: it wants no volume, and is
// not ready.
func hasEnded(p manager.PodStatus) bool { return p.Listed && !p.Ready && len(p.Volumes) == 0 }

func (f Facts) explainPodVolume(e *Explanation, pod state.Pod, v manager.PodVolumeStatus) {
	e.add("volume", "%s", f.titleOf(v))
	if v.Mounted {
		e.add("done", "mounted at %s%s%s", v.HostPath, readOnly(v.ReadOnly), f.contentOf(v))
		if v.Drift != "" {
			e.worsen(Stuck)
			e.add("but", "%s", v.Drift)
		}
		f.explainFSGroup(e, pod.UID, v.ID)
	}
	if v.ID != "" {
		f.explainHealth(e, string(v.ID))
	}
	if v.Unresolved() {
		e.worsen(f.unresolved(v))
		e.add("because", "%s", v.BlockedBy)
		f.explainUnresolved(e, v)
		return
	}
	if s := stepOfPod(f, pod.UID, v); s.pending() {
		s.explain(f, e)
	}
	f.explainClaims(e, v)
}

// contentOf returns the age of the content of a volume that follows objects. If an
// update fails, the last good content stays.
func (f Facts) contentOf(v manager.PodVolumeStatus) string {
	if v.ContentAt.IsZero() {
		return ""
	}
	return fmt.Sprintf(", with the content of %s ago", f.ago(v.ContentAt))
}

// away reports whether the API server is away, which is a problem of its own.
func (f Facts) away() bool {
	return slices.ContainsFunc(f.Problems, func(p Problem) bool { return p.Code == APIServerAway })
}

func (f Facts) explainVolume(e *Explanation) error {
	v, err := volumeNamed(f.Volumes, e.Name)
	if err != nil {
		if !errors.Is(err, ErrNotFound) {
			return err
		}
		if !f.explainUnused(e) {
			f.unknown(e)
		}
		return nil
	}
	vol := v.Volume
	if v.Quarantined != "" {
		e.worsen(Stuck)
		e.add("volume", "id %s", vol.ID)
		e.add("because", "its record in the journal cannot be read: %s", v.Quarantined)
		e.add("next", nextUnreadable)
		e.add("you can", "%s", adviceUnreadable(vol.ID))
		return nil
	}
	e.add("volume", "%s, id %s", f.title(vol.Spec.Value()), vol.ID)
	e.add("wanted by", "%s", f.wanters(v))
	if done := doneOf(vol); done != "" {
		e.add("done", "%s", done)
	}
	f.explainHealth(e, string(vol.ID))
	s := stepOfVolume(f, v)
	if s.pending() {
		s.explain(f, e)
	}
	for _, c := range f.Claims {
		if c.key() == vol.Spec.Claim {
			f.explainClaim(e, c)
		}
	}
	// The step that the volume shows may hide one of another pod's mount.
	for _, p := range f.Pods {
		for _, pv := range p.Volumes {
			if o := stepOfPod(f, p.Pod.UID, pv); pv.ID == vol.ID && o.pending() && !o.same(s) {
				e.add("also", "pod %s/%s: %s", p.Pod.Namespace, p.Pod.Name, o.line(f.Now))
			}
		}
	}
	f.explainNamed(e)
	return nil
}

// explainUnused explains a claim or persistent volume that no pod on this node uses. It
// reports whether there is one of that name.
func (f Facts) explainUnused(e *Explanation) bool {
	before := len(e.Lines)
	for _, c := range f.Claims {
		if c.Namespace+"/"+c.Name != e.Name && c.Name != e.Name {
			continue
		}
		e.add("wanted by", "no pod on this node that could be resolved")
		f.explainClaim(e, c)
		switch {
		case c.Phase == "Bound":
			e.add("because", "claim %s/%s is bound to %s, and no pod on this node uses it", c.Namespace, c.Name, c.Volume)
			f.explainHealthOf(e, c.key())
		default:
			e.worsen(c.verdict())
			f.explainWait(e, c.Cause, c)
		}
	}
	for _, v := range f.PersistentVolumes {
		if v.Name == e.Name || v.Handle == e.Name {
			e.add("because", "persistent volume %s is %s, and no pod on this node uses it", v.Name, v.Status)
		}
	}
	return len(e.Lines) > before
}

// wanters names the pods that want a volume.
func (f Facts) wanters(v manager.VolumeStatus) string {
	names := make([]string, len(v.Wanted))
	for i, uid := range v.Wanted {
		names[i] = f.podEnding(f.podName(v.Volume, uid))
	}
	if len(names) == 0 {
		return "no pod; it is being removed from this node"
	}
	return strings.Join(names, ", ")
}

// podName returns the "namespace/name" of a pod that has or wants v, or its uid if the
// name is unknown.
func (f Facts) podName(v state.Volume, uid state.PodUID) string {
	for _, p := range f.Pods {
		if p.Pod.UID == uid {
			return p.Pod.Namespace + "/" + p.Pod.Name
		}
	}
	if m, ok := v.Mounts[uid]; ok && m.Pod.Name != "" {
		return m.Pod.Namespace + "/" + m.Pod.Name
	}
	return string(uid)
}

func (f Facts) unknown(e *Explanation) {
	e.Verdict = Unknown
	e.add("because", "no %s called %s is known here", e.Kind, e.Name)
	for _, n := range f.NotReady {
		e.add("perhaps", "it has not been read yet: %s", n)
	}
	for _, p := range f.Problems {
		if p.Code == APIServerAway && len(f.NotReady) > 0 {
			continue // the lines above name this reason for what is not read yet
		}
		e.add("perhaps", "it is in a source that could not be read: %s", p)
	}
	switch e.Kind {
	case "pod", "pvc":
		e.add("you can", "apply it: csi-volmgr apply -f FILE; or see what there is: csi-volmgr get %s -A",
			strings.Replace(e.Kind, "pod", "pods", 1))
	case "snapshot", "groupsnapshot":
		if ns, name, _ := strings.Cut(e.Name, "/"); f.Cluster {
			e.add("perhaps", "it is of the cluster, whose external-snapshotter makes the snapshots of its claims: kubectl "+
				"describe volume%s %s -n %s", e.Kind, name, ns)
		}
		e.add("you can", "see what there is: csi-volmgr get %ss -A", e.Kind)
	default:
		e.add("you can", "see what there is: csi-volmgr get %ss", e.Kind)
	}
}

// String returns the problem in one line: place, object, field and message.
func (p Problem) String() string {
	var b strings.Builder
	switch {
	case p.File != "" && p.Line > 0:
		fmt.Fprintf(&b, "%s:%d: ", p.File, p.Line)
	case p.File != "":
		b.WriteString(p.File + ": ")
	case p.Source != "":
		b.WriteString("source " + p.Source + ": ")
	}
	for _, s := range []string{p.Object, p.Field} {
		if s != "" {
			b.WriteString(s + ": ")
		}
	}
	return b.String() + p.Message
}

func (f Facts) driver(name state.DriverName) (manager.DriverStatus, bool) {
	for _, d := range f.Drivers {
		if d.Name == name {
			return d, true
		}
	}
	return manager.DriverStatus{}, false
}

func (f Facts) volume(id state.VolumeID) (manager.VolumeStatus, bool) {
	for _, v := range f.Volumes {
		if v.Volume.ID == id {
			return v, true
		}
	}
	return manager.VolumeStatus{}, false
}

// ago returns the time since t as people say it.
func (f Facts) ago(t time.Time) string { return Age(t, f.Now) }
