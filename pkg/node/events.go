package node

import (
	"context"
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

const (
	// maxCalls is how many ended calls may wait to be told of.
	maxCalls = 1024
	// holdPatience is how long a volume may wait for something that is no call
	// before that is an event: most waits are over by then.
	holdPatience = 30 * time.Second
	// holdAgain is when a wait that goes on is told of again: events are
	// forgotten by the server after an hour.
	holdAgain = 10 * time.Minute
	// holdPause is the least time between two looks for such waits.
	holdPause = 10 * time.Second
)

// The kubelet's reasons of events, and two for what it does not tell.
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

// runEvents tells the API server's users what becomes of their volumes.
func (n *Node) runEvents(ctx context.Context) error {
	waits := map[waiting]time.Time{}
	pause := time.NewTimer(holdPause)
	defer pause.Stop()
	var changed <-chan struct{}
	for {
		select {
		case c := <-n.ended:
			n.tellCall(c)
		case <-changed:
			changed = nil
			pause.Reset(holdPause)
		case <-pause.C:
			changed = n.manager.Changed()
			if waits = n.tellWaits(waits, time.Now()); len(waits) > 0 {
				pause.Reset(holdPause) // there is nothing that tells when one is over
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// tellCall tells of a call that ended: the pod that it was for, or all for whose
// sake it was made, and of an expansion, or where there is no pod, the claim.
func (n *Node) tellCall(c manager.EndedCall) {
	s, ok := n.manager.Volume(c.Volume)
	failed := c.Error != ""
	reason := callReason(c.Op, failed, s.Volume.Spec.Mode == state.Block)
	if c.Op == plan.Expand && failed && ok {
		n.expandFailed(c, s.Volume)
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
		told = n.tellPod(uid, s.Volume, e, sentence) || told
	}
	if c.Op == plan.Expand || !told {
		n.tellClaimOf(s.Volume, e, sentence)
	}
	if c.Code == state.FilesystemMismatch {
		n.tellVolume(s.Volume, report.Event{Warning: true, Reason: reasonOtherFS}, sentence)
	}
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

// tellPod has an event about a pod written, if the pod is the cluster's.
func (n *Node) tellPod(uid state.PodUID, v state.Volume, e report.Event, sentence string) bool {
	p, ok := n.manager.Pod(uid)
	key := source.Key{Kind: resolve.KindPod, Namespace: p.Pod.Namespace, Name: p.Pod.Name}
	if !ok || n.catalog.Get(key) != nil && n.catalog.Provider(key) != kube.Name {
		return false
	}
	names := v.Spec.Name
	for _, pv := range p.Volumes {
		if pv.ID == v.ID && v.ID != "" {
			names = strings.Join(pv.Names, ", ")
		}
	}
	e.About = corev1.ObjectReference{APIVersion: "v1", Kind: resolve.KindPod, Namespace: p.Pod.Namespace, Name: p.Pod.Name, UID: types.UID(uid)}
	e.Text = server.Told(names, sentence)
	n.report.Event(e)
	return true
}

// tellClaimOf has an event about a volume's claim written, if that is the cluster's.
func (n *Node) tellClaimOf(v state.Volume, e report.Event, sentence string) {
	c, ok := n.claimOf(v)
	if !ok {
		return
	}
	e.About = corev1.ObjectReference{APIVersion: "v1", Kind: resolve.KindClaim, Namespace: c.Namespace, Name: c.Name}
	if claim, ok := n.catalog.Get(source.Key{Kind: resolve.KindClaim, Namespace: c.Namespace, Name: c.Name}).(*corev1.PersistentVolumeClaim); ok {
		e.About.UID = claim.UID
	}
	e.Text = server.Told(v.Spec.Name, sentence)
	n.report.Event(e)
}

// waiting is a volume of a pod that waits for something that is no call.
type waiting struct {
	pod      state.PodUID
	id       state.VolumeID
	names    string
	step     string
	sentence string
}

// tellWaits tells of waits that take long, and again of those that take very
// long. waits says since when each is there, or is to be told of again; what is
// returned says so of those of now.
func (n *Node) tellWaits(waits map[waiting]time.Time, now time.Time) map[waiting]time.Time {
	f := server.Facts{Pods: n.manager.Pods(), Drivers: n.manager.Drivers(), Sockets: n.Views().Sockets(), Now: now}
	still := map[waiting]time.Time{}
	for _, p := range f.Pods {
		for _, v := range p.Volumes {
			if !p.Listed || v.BlockedBy == "" || v.Retry.Attempts > 0 || v.Mounted && v.Step != plan.Expand.String() {
				continue // failures of calls are told of as they happen
			}
			s, _ := n.manager.Volume(v.ID)
			f.Volumes = []manager.VolumeStatus{s}
			w := waiting{p.Pod.UID, v.ID, strings.Join(v.Names, ", "), v.Step, f.Because(p.Pod.UID, v)}
			if w.sentence == "" {
				continue
			}
			since, known := waits[w]
			if !known {
				since = now
			}
			if now.Sub(since) >= holdPatience {
				since = now.Add(holdAgain - holdPatience)
				n.tellPod(w.pod, state.Volume{ID: w.id, Spec: state.Spec{Name: w.names}}, report.Event{Warning: true, Reason: waitReason(v)}, w.sentence)
			}
			still[w] = since
		}
	}
	return still
}

// waitReason is the reason of the event of a wait.
func waitReason(v manager.PodVolumeStatus) string {
	switch {
	case v.Step == plan.Attach.String():
		return reasonAttachFailed
	case v.Step == plan.Expand.String():
		return reasonNoResize
	case v.Mode == state.Block:
		return reasonMapFailed
	default:
		return reasonMountFailed
	}
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
		n.tellPod(uid, s.Volume, e, sentence)
	}
}
