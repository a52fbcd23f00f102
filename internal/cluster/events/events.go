// Package events writes the events of a cluster: the results of calls on a pod's volumes, what volumes
// wait for, and the health of their mounts and storage.
//
// Owns: which event is written when, about which object, with which of the kubelet's reasons; and what
// was written, so that it is not written again.
//
// Does not: word what a volume waits for, which internal/serve/server explains, nor send events, which
// internal/cluster/report does within its limits.
package events

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/report"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/stats"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// maxCalls bounds the queue of ended calls without an event yet.
const maxCalls = 1024

// The kubelet's event reasons, and those for events that the kubelet does not have.
const (
	reasonMountFailed   = "FailedMount"
	reasonMapFailed     = "FailedMapVolume"
	reasonAttachFailed  = "FailedAttachVolume"
	reasonDetachFailed  = "FailedDetachVolume"
	reasonUnmountFailed = "FailedUnMount"
	reasonUnmapFailed   = "FailedUnmapDevice"
	reasonResizeFailed  = "VolumeResizeFailed"
	reasonNoResize      = "FileSystemResizeFailed"
	reasonMounted       = "SuccessfulMountVolume"
	reasonAttached      = "SuccessfulAttachVolume"
	reasonResized       = "FileSystemResizeSuccessful"
	reasonOtherFS       = "FailedMountOnFilesystemMismatch"
	reasonAbnormal      = "VolumeConditionAbnormal"
	reasonHealthy       = "VolumeConditionNormal"
	reasonNotNormal     = "UnmountedNotNormally"
	reasonRecovered     = "JournalRecovered"
	reasonGroupFailed   = "VolumePermissionChangeFailed"
)

// callReason returns the event reason for a call that ended; "" if it has no event.
func callReason(op plan.Kind, failed, block bool) string {
	pick := func(ofBlock, ofFiles string) string {
		if block {
			return ofBlock
		}
		return ofFiles
	}
	switch {
	case op == plan.Attach && failed:
		return reasonAttachFailed
	case op == plan.Attach:
		return reasonAttached
	case op == plan.Detach && failed:
		return reasonDetachFailed
	case op == plan.Expand && failed:
		return reasonResizeFailed
	case op == plan.Expand:
		return reasonResized
	case op.Removes() && failed:
		return pick(reasonUnmapFailed, reasonUnmountFailed)
	case op.Removes():
		return ""
	case failed:
		return pick(reasonMapFailed, reasonMountFailed)
	case op == plan.Publish:
		return reasonMounted
	default:
		return ""
	}
}

// endedCall is a call that has ended, with the volume's claim at that time.
type endedCall struct {
	manager.EndedCall
	claim corev1.ObjectReference
}

// Volumes is the part of the manager that the events read.
type Volumes interface {
	Pod(uid state.PodUID) (manager.PodStatus, bool)
	Volume(id state.VolumeID) (manager.VolumeStatus, bool)
	// Changed returns a channel that closes at the next change of pods or volumes.
	Changed() <-chan struct{}
}

// Objects is the part of the catalog that the events read.
type Objects interface {
	// Get returns an object, nil if there is none.
	Get(key source.Key) runtime.Object
	// Provider names the source that has the object.
	Provider(key source.Key) string
}

// Config is what a Writer needs; every field but Patience is required.
type Config struct {
	// NodeName is the name of the Node object.
	NodeName string
	Volumes  Volumes
	Objects  Objects
	// Facts returns the current facts that an explanation is made from.
	Facts func() server.Facts
	// Event writes an event (report.Reporter.Event).
	Event func(report.Event)
	// ExpandFailed is called for each failed expansion, before its event.
	ExpandFailed func(c manager.EndedCall, v state.Volume)
	// Lost says that the journal may have lost records; "" if it has not.
	Lost func() string
	// Patience is how long a volume may wait before the writer reports it; 0 means 2 minutes.
	Patience time.Duration
}

// Writer writes events. Any goroutine may call Ended and Health, and one may call Run.
type Writer struct {
	Config
	ended chan *endedCall
	waits waits
	// claims has the claims of volumes that calls were made for. Once no pod names a claim it is no
	// longer read, but events about its leftover volume still name it.
	claims map[state.VolumeID]corev1.ObjectReference
}

// New returns a writer. It writes nothing before Run.
func New(c Config) *Writer {
	return &Writer{
		Config: c, ended: make(chan *endedCall, maxCalls), waits: waits{},
		claims: map[state.VolumeID]corev1.ObjectReference{},
	}
}

// Ended queues the event of a call that has ended. It does not block: if too many calls end at once, some
// have no event, only log lines.
func (w *Writer) Ended(c manager.EndedCall) {
	claim, _ := w.aboutClaim(c.Of)
	select {
	case w.ended <- &endedCall{c, claim}:
	default:
	}
}

// Run writes events until ctx ends: of calls as they end, and of volumes once they have waited for long.
// It returns nil.
func (w *Writer) Run(ctx context.Context) error {
	w.reportRecovery()
	patience := cmp.Or(w.Patience, waitPatience)
	between := min(lookPause, patience)
	pause := time.NewTimer(between)
	defer pause.Stop()
	var changed <-chan struct{}
	for {
		select {
		case c := <-w.ended:
			w.reportCall(*c)
		case <-changed:
			changed = nil
			pause.Reset(between)
		case <-pause.C:
			changed = w.Volumes.Changed()
			if w.reportWaits(patience) {
				pause.Reset(between) // no change will mark the moment when a wait has become long
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// reportCall writes the events of a call that ended: about its pod or all pods that it was made for, and,
// for an expansion or if there is no pod, about the claim.
func (w *Writer) reportCall(c endedCall) {
	s, ok := w.Volumes.Volume(c.Volume)
	failed := c.Error != ""
	reason := callReason(c.Op, failed, s.Volume.Spec.Mode == state.Block)
	if c.Op == plan.Expand && failed && ok {
		w.ExpandFailed(c.EndedCall, s.Volume)
	}
	if c.claim.UID != "" {
		w.claims[c.Volume] = c.claim
	}
	if !failed && c.Step != state.UnmountNormal {
		ok, reason, s.Volume = true, reasonNotNormal, c.Of
	}
	if !ok || reason == "" || !failed && s.Volume.Spec.Builtin && reason != reasonNotNormal {
		return
	}
	sentence := "it is mounted"
	switch {
	case failed:
		sentence = server.Failure(c.Retry)
	case reason == reasonNotNormal:
		sentence = "it was unmounted by the step " + c.Step.String() + ": data that was not written back may be lost"
	case c.Op == plan.Attach:
		sentence = "it is attached"
	case c.Op == plan.Expand:
		sentence = "it has been expanded on the node"
	}
	e := report.Event{Warning: failed || reason == reasonNotNormal, Reason: reason}
	pods := s.Volume.For
	if c.Pod != "" {
		pods = []state.PodUID{c.Pod}
	}
	reported := false
	for _, uid := range pods {
		reported = w.reportPod(uid, w.namesOf(uid, s.Volume), e, sentence) || reported
	}
	if !failed && c.Retry.Error != "" {
		w.reportPod(c.Pod, w.namesOf(c.Pod, s.Volume), report.Event{Warning: true, Reason: reasonGroupFailed},
			"its files were not all given to the pod's fsGroup: "+c.Retry.Error)
	}
	if c.Op == plan.Expand || !reported {
		w.reportClaimOf(s.Volume, e, sentence)
	}
	if c.Code == state.FilesystemMismatch {
		w.reportVolume(s.Volume, report.Event{Warning: true, Reason: reasonOtherFS}, sentence)
	}
}

// reportRecovery writes an event about the Node if the journal may have lost records. The event names the
// Node by its name, not its UID, as the kubelet's do.
func (w *Writer) reportRecovery() {
	lost := w.Lost()
	if lost == "" {
		return
	}
	w.Event(report.Event{
		About:   corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: w.NodeName, UID: types.UID(w.NodeName)},
		Warning: true, Reason: reasonRecovered, Text: lost,
	})
}

// reportVolume writes an event about the cluster's PersistentVolume, for the administrator who made it.
func (w *Writer) reportVolume(v state.Volume, e report.Event, sentence string) {
	pv, ok := w.Objects.Get(source.Key{Kind: resolve.KindVolume, Name: v.Spec.Name}).(*corev1.PersistentVolume)
	if !ok {
		return
	}
	e.About = corev1.ObjectReference{APIVersion: "v1", Kind: resolve.KindVolume, Name: pv.Name, UID: pv.UID}
	e.Text = server.VolumeSentence(v.Spec.Name, sentence)
	w.Event(e)
}

// reportPod writes an event about a pod's volume if the pod is the cluster's, and reports whether it did.
func (w *Writer) reportPod(uid state.PodUID, names string, e report.Event, sentence string) bool {
	p, ok := w.Volumes.Pod(uid)
	key := source.Key{Kind: resolve.KindPod, Namespace: p.Pod.Namespace, Name: p.Pod.Name}
	if !ok || w.Objects.Get(key) != nil && w.Objects.Provider(key) != source.Kube {
		return false
	}
	e.About = corev1.ObjectReference{
		APIVersion: "v1", Kind: resolve.KindPod, Namespace: p.Pod.Namespace, Name: p.Pod.Name,
		UID: types.UID(uid),
	}
	e.Text = server.VolumeSentence(names, sentence)
	w.Event(e)
	return true
}

// namesOf returns the pod's names for a volume.
func (w *Writer) namesOf(uid state.PodUID, v state.Volume) string {
	p, _ := w.Volumes.Pod(uid)
	for _, pv := range p.Volumes {
		if pv.ID == v.ID {
			return strings.Join(pv.Names, ", ")
		}
	}
	return v.Spec.Name
}

// aboutClaim returns a reference to a volume's claim, and whether the claim is the cluster's. The
// reference has no UID if the claim is no longer read.
func (w *Writer) aboutClaim(v state.Volume) (corev1.ObjectReference, bool) {
	namespace, name, ok := strings.Cut(v.Spec.Claim, "/")
	about := corev1.ObjectReference{APIVersion: "v1", Kind: resolve.KindClaim, Namespace: namespace, Name: name}
	key := source.Key{Kind: resolve.KindClaim, Namespace: namespace, Name: name}
	if claim, read := w.Objects.Get(key).(*corev1.PersistentVolumeClaim); read {
		about.UID, ok = claim.UID, w.Objects.Provider(key) == source.Kube
	}
	return about, ok
}

// reportClaimOf writes an event about a volume's claim if the claim is the cluster's.
func (w *Writer) reportClaimOf(v state.Volume, e report.Event, sentence string) {
	about, ok := w.aboutClaim(v)
	if !ok {
		return
	}
	if was, known := w.claims[v.ID]; known && about.UID == "" {
		about = was
	}
	e.About, e.Text = about, server.VolumeSentence(v.Spec.Name, sentence)
	w.Event(e)
}

// reportWaits writes events about long waits and about mounts that drifted or were restored. It reports
// whether more will be due later.
func (w *Writer) reportWaits(patience time.Duration) bool {
	f := w.Facts()
	notices, more := w.waits.look(f, patience)
	for _, n := range notices {
		e := report.Event{Warning: n.warning, Reason: n.reason}
		s, _ := w.Volumes.Volume(n.volume)
		if n.pod != "" {
			w.reportPod(n.pod, n.names, e, n.sentence)
		}
		if n.pod == "" || n.reason == reasonNoResize {
			w.reportClaimOf(s.Volume, e, n.sentence)
		}
	}
	known := make(map[state.VolumeID]bool, len(f.Volumes))
	for _, v := range f.Volumes {
		known[v.Volume.ID] = true
	}
	maps.DeleteFunc(w.claims, func(id state.VolumeID, _ corev1.ObjectReference) bool { return !known[id] })
	return more
}

// Health writes, for each pod of a volume, an event that its driver found the volume healthy or not.
func (w *Writer) Health(h stats.Status) {
	s, ok := w.Volumes.Volume(state.VolumeID(h.Key))
	if !ok {
		return
	}
	var texts []string
	for _, c := range h.Conditions {
		texts = append(texts, c.String())
	}
	e, sentence := report.Event{Reason: reasonHealthy}, "the driver says that it is healthy again"
	if h.Health == stats.Abnormal {
		e, sentence = report.Event{Reason: reasonAbnormal, Warning: true}, strings.Join(texts, "; ")
	}
	for _, uid := range slices.Sorted(slices.Values(s.Wanted)) {
		w.reportPod(uid, w.namesOf(uid, s.Volume), e, sentence)
	}
}
