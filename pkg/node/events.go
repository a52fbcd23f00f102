package node

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/report"
	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/source/kube"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/pkg/stats"
)

// maxCalls is how many ended calls may wait to be told of.
const maxCalls = 1024

// The kubelet's reasons of events, and those for what it does not tell.
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
)

// callReason is the reason of the event of a call that ended; "" for none.
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

// endedCall is a call to be told of, with the volume's claim as it was when it ended.
type endedCall struct {
	manager.EndedCall
	claim corev1.ObjectReference
}

// teller tells the API server's users what becomes of their volumes. It is used by
// one goroutine.
type teller struct {
	*Node
	waits waits
	// claims are those of volumes that calls were made for. A claim is not read any
	// more once no pod names it, and of what is left of its volume it is told still.
	claims map[state.VolumeID]corev1.ObjectReference
}

// runEvents tells of calls as they end, and of what waits when it has done so for long.
func (n *Node) runEvents(ctx context.Context) error {
	t := teller{n, waits{}, map[state.VolumeID]corev1.ObjectReference{}}
	n.tellRecovery()
	patience := cmp.Or(n.cfg.waitPatience, waitPatience)
	between := min(lookPause, patience)
	pause := time.NewTimer(between)
	defer pause.Stop()
	var changed <-chan struct{}
	for {
		select {
		case c := <-n.ended:
			t.tellCall(*c)
		case <-changed:
			changed = nil
			pause.Reset(between)
		case <-pause.C:
			changed = n.manager.Changed()
			if t.tellWaits(patience) {
				pause.Reset(between) // there is nothing that tells when one has taken long
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// tellCall tells of a call that ended: the pod that it was for, or all for whose
// sake it was made, and of an expansion, or where there is no pod, the claim.
func (n *teller) tellCall(c endedCall) {
	s, ok := n.manager.Volume(c.Volume)
	failed := c.Error != ""
	reason := callReason(c.Op, failed, s.Volume.Spec.Mode == state.Block)
	if c.Op == plan.Expand && failed && ok {
		n.expandFailed(c.EndedCall, s.Volume)
	}
	if c.claim.UID != "" {
		n.claims[c.Volume] = c.claim
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
		sentence = "it was unmounted by the step " + c.Step.String() + ": what was not written back may be lost"
	case c.Op == plan.Attach:
		sentence = "it is attached"
	case c.Op == plan.Expand:
		sentence = "it has been made larger on the node"
	}
	e := report.Event{Warning: failed || reason == reasonNotNormal, Reason: reason}
	pods := s.Volume.For
	if c.Pod != "" {
		pods = []state.PodUID{c.Pod}
	}
	told := false
	for _, uid := range pods {
		told = n.tellPod(uid, n.namesOf(uid, s.Volume), e, sentence) || told
	}
	if c.Op == plan.Expand || !told {
		n.tellClaimOf(s.Volume, e, sentence)
	}
	if c.Code == state.FilesystemMismatch {
		n.tellVolume(s.Volume, report.Event{Warning: true, Reason: reasonOtherFS}, sentence)
	}
}

// tellRecovery has an event about the Node written where the journal may have lost
// records. A Node's events name it by its name, as the kubelet's do.
func (n *Node) tellRecovery() {
	r := n.journal.Recovery()
	if r.Why == "" {
		return
	}
	n.report.Event(report.Event{
		About:   corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.cfg.Name, UID: types.UID(n.cfg.Name)},
		Warning: true, Reason: reasonRecovered, Text: recovered(r),
	})
}

// tellVolume has an event about the cluster's PersistentVolume written, which is
// where whoever made it looks.
func (n *Node) tellVolume(v state.Volume, e report.Event, sentence string) {
	pv, ok := n.catalog.Get(source.Key{Kind: resolve.KindVolume, Name: v.Spec.Name}).(*corev1.PersistentVolume)
	if !ok {
		return
	}
	e.About = corev1.ObjectReference{APIVersion: "v1", Kind: resolve.KindVolume, Name: pv.Name, UID: pv.UID}
	e.Text = server.Told(v.Spec.Name, sentence)
	n.report.Event(e)
}

// tellPod has an event about a pod's volume written, if the pod is the cluster's.
func (n *Node) tellPod(uid state.PodUID, names string, e report.Event, sentence string) bool {
	p, ok := n.manager.Pod(uid)
	key := source.Key{Kind: resolve.KindPod, Namespace: p.Pod.Namespace, Name: p.Pod.Name}
	if !ok || n.catalog.Get(key) != nil && n.catalog.Provider(key) != kube.Name {
		return false
	}
	e.About = corev1.ObjectReference{
		APIVersion: "v1", Kind: resolve.KindPod, Namespace: p.Pod.Namespace, Name: p.Pod.Name,
		UID: types.UID(uid),
	}
	e.Text = server.Told(names, sentence)
	n.report.Event(e)
	return true
}

// namesOf is what a pod calls a volume.
func (n *Node) namesOf(uid state.PodUID, v state.Volume) string {
	p, _ := n.manager.Pod(uid)
	for _, pv := range p.Volumes {
		if pv.ID == v.ID {
			return strings.Join(pv.Names, ", ")
		}
	}
	return v.Spec.Name
}

// aboutClaim returns a volume's claim, if that is the cluster's: without its uid
// where the claim is not read any more.
func (n *Node) aboutClaim(v state.Volume) (corev1.ObjectReference, bool) {
	namespace, name, ok := strings.Cut(v.Spec.Claim, "/")
	about := corev1.ObjectReference{APIVersion: "v1", Kind: resolve.KindClaim, Namespace: namespace, Name: name}
	key := source.Key{Kind: resolve.KindClaim, Namespace: namespace, Name: name}
	if claim, read := n.catalog.Get(key).(*corev1.PersistentVolumeClaim); read {
		about.UID, ok = claim.UID, n.catalog.Provider(key) == kube.Name
	}
	return about, ok
}

// tellClaimOf has an event about a volume's claim written, if that is the cluster's.
func (n *teller) tellClaimOf(v state.Volume, e report.Event, sentence string) {
	about, ok := n.aboutClaim(v)
	if !ok {
		return
	}
	if was, known := n.claims[v.ID]; known && about.UID == "" {
		about = was
	}
	e.About, e.Text = about, server.Told(v.Spec.Name, sentence)
	n.report.Event(e)
}

// tellWaits tells of waits that have taken long, and of mounts that are no longer as
// they were made. It reports whether there is more to tell later.
func (n *teller) tellWaits(patience time.Duration) bool {
	f := server.Facts{
		Pods: n.manager.Pods(), Volumes: n.manager.Volumes(), Drivers: n.manager.Drivers(),
		Sockets: n.Views().Sockets(), Now: time.Now(),
	}
	told, more := n.waits.look(f, patience)
	for _, w := range told {
		e := report.Event{Warning: w.warning, Reason: w.reason}
		s, _ := n.manager.Volume(w.volume)
		if w.pod != "" {
			n.tellPod(w.pod, w.names, e, w.sentence)
		}
		if w.pod == "" || w.reason == reasonNoResize {
			n.tellClaimOf(s.Volume, e, w.sentence)
		}
	}
	known := make(map[state.VolumeID]bool, len(f.Volumes))
	for _, v := range f.Volumes {
		known[v.Volume.ID] = true
	}
	maps.DeleteFunc(n.claims, func(id state.VolumeID, _ corev1.ObjectReference) bool { return !known[id] })
	return more
}

// tellHealth tells every pod that has a volume that its driver says it is well, or is not.
func (n *Node) tellHealth(h stats.Status) {
	if n.report == nil {
		return
	}
	s, ok := n.manager.Volume(state.VolumeID(h.Key))
	if !ok {
		return
	}
	var texts []string
	for _, c := range h.Conditions {
		texts = append(texts, c.String())
	}
	e, sentence := report.Event{Reason: reasonHealthy}, "the driver says that nothing is wrong with it any more"
	if h.Health == stats.Abnormal {
		e, sentence = report.Event{Reason: reasonAbnormal, Warning: true}, strings.Join(texts, "; ")
	}
	for _, uid := range slices.Sorted(slices.Values(s.Wanted)) {
		n.tellPod(uid, n.namesOf(uid, s.Volume), e, sentence)
	}
}
