package server

import (
	"fmt"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
)

// StuckProblems lists the pods, claims and volumes without a pod that are stuck, each
// with its cause and the command that explains it.
func (f Facts) StuckProblems() (out []Problem) {
	add := func(source, object, kind, name, look string) {
		e, err := Explain(f, kind, name)
		if err != nil || e.Verdict != Stuck {
			return
		}
		out = append(out, Problem{Source: source, Object: object, Message: e.cause() +
			"; look with: csi-volmgr explain " + look})
	}
	explained, groupless := map[string]bool{}, f.groupless()
	for _, p := range f.Pods {
		if !troubled(p) && !groupless[p.Pod.UID] {
			continue
		}
		name := p.Pod.Namespace + "/" + p.Pod.Name
		add("pods", "pod "+name, "pod", name, "pod "+p.Pod.Name+" -n "+p.Pod.Namespace)
		for _, v := range p.Volumes { // the pod's explanation includes all of them
			explained[string(v.ID)] = true
		}
	}
	for _, v := range f.Volumes {
		id := string(v.Volume.ID)
		if v.Quarantined != "" || !explained[id] && (v.Held.Waits() || v.Volume.Stage.Failed != nil ||
			v.Unmount != nil) {
			add("volumes", "volume "+id, "volume", id, "volume '"+id+"'")
		}
	}
	for _, c := range f.Claims {
		if c.Reason != "" || c.Retry.Attempts > 0 {
			name := c.Namespace + "/" + c.Name
			add("claims", "persistentvolumeclaim "+name, "pvc", name, "pvc "+c.Name+" -n "+c.Namespace)
		}
	}
	for _, s := range f.Snapshots {
		if s.Doubted && s.Group == "" {
			add("snapshots", "snapshot "+s.key(), "snapshot", s.key(), "snapshot "+s.Name+" -n "+s.Namespace)
		}
	}
	for _, g := range f.Groups {
		if g.Doubted {
			add("snapshots", "group snapshot "+g.key(), "groupsnapshot", g.key(), "groupsnapshot "+g.Name+" -n "+g.Namespace)
		}
	}
	return out
}

// troubled reports whether any volume of the pod may be stuck.
func troubled(p manager.PodStatus) bool {
	return slices.ContainsFunc(p.Volumes, func(v manager.PodVolumeStatus) bool {
		return !v.Mounted || v.Drift != "" || v.BlockedBy != "" || v.Retry.Attempts > 0
	})
}

// cause returns the line of the explanation that says why.
func (e Explanation) cause() string {
	for _, labels := range [][]string{{"because", "but"}, {"claim"}} {
		for _, l := range e.Lines {
			if slices.Contains(labels, l.Label) {
				return strings.TrimSuffix(l.Text, ".")
			}
		}
	}
	return fmt.Sprintf("%s is %s", e.Kind, e.Verdict)
}
