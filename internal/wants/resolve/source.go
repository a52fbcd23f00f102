package resolve

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// sources lists the names of the fields that are set in s, a Kubernetes struct
// with one pointer for each kind of volume source.
func sources(s any) []string {
	var set []string
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Pointer && !f.IsNil() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			set = append(set, name)
		}
	}
	slices.Sort(set)
	return set
}

// sourceKind returns the name of the one source that is set in s. As on the API
// server, a pod's volume without a source is an emptyDir.
func sourceKind(field string, s any) (name string, f Fault, bad bool) {
	set := sources(s)
	switch len(set) {
	case 0:
		return "emptyDir", Fault{}, false
	case 1:
		return set[0], Fault{}, false
	}
	return "", Fault{field, strings.Join(set, " and "), "exactly one kind of volume"}, true
}

// sourceOf holds the resolvers of a built-in kind: pod for a volume in a pod's
// spec, pv for a PersistentVolume. One is nil if the kind is not allowed there.
type sourceOf struct {
	pod func(r *resolver, v *corev1.Volume, field string) (state.VolumeWant, error)
	pv  func(r *resolver, pv *corev1.PersistentVolume) (state.VolumeWant, Fault, error)
}

// sourcesOf returns the resolvers of a kind. It has a case for each row of [kind.All].
func sourcesOf(name state.DriverName) sourceOf {
	switch name {
	case kind.CephFS:
		return sourceOf{(*resolver).podCephFS, (*resolver).volumeCephFS}
	case kind.EmptyDir:
		return sourceOf{pod: (*resolver).podEmptyDir}
	case kind.FC:
		return sourceOf{(*resolver).podFC, (*resolver).volumeFC}
	case kind.GlusterFS:
		return sourceOf{(*resolver).podGlusterFS, (*resolver).volumeGlusterFS}
	case kind.HostPath:
		return sourceOf{(*resolver).podHostPath, (*resolver).volumeHostPath}
	case kind.Image:
		return sourceOf{pod: (*resolver).podImage}
	case kind.ISCSI:
		return sourceOf{(*resolver).podISCSI, (*resolver).volumeISCSI}
	case kind.Local:
		return sourceOf{pv: (*resolver).volumeLocal}
	case kind.NFS:
		return sourceOf{(*resolver).podNFS, (*resolver).volumeNFS}
	case kind.ConfigMap, kind.DownwardAPI, kind.Projected, kind.Secret:
		return sourceOf{pod: (*resolver).podFiles}
	}
	return sourceOf{}
}

// serves returns the built-in kind of a source and whether this node serves it. A
// cephfs volume with a Secret (cephSecret) belongs to ceph-csi. One with a secret
// file is served here, because ceph-csi has no field for it.
func (r *resolver) serves(field string, cephSecret bool) (k kind.Kind, ok bool) {
	k, ok = kind.OfField(field)
	return k, ok && r.has(k.Name) && !(k.Name == kind.CephFS && cephSecret)
}

// kinds lists the kinds of volumes that a pod's spec may have on this node.
func (r *resolver) kinds() []string {
	return r.served([]string{"csi", "ephemeral", "persistentVolumeClaim"}, func(k kind.Kind) bool { return k.Pod })
}

// volumeKinds lists the kinds that a PersistentVolume may have on this node.
func (r *resolver) volumeKinds() []string {
	return r.served([]string{"csi"}, func(k kind.Kind) bool { return k.PV })
}

func (r *resolver) served(names []string, has func(kind.Kind) bool) []string {
	names = append(names, r.inTreeKinds()...)
	for _, k := range kind.All() {
		if has(k) && r.has(k.Name) {
			names = append(names, k.Field)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// mergeSame merges the wants that name the same volume: two of the pod's volumes
// may name one claim, and two claims' volumes may have one handle. wants is sorted
// by name; a merged entry has the spec of its first.
func mergeSame(wants []state.VolumeWant) []state.VolumeWant {
	merged := slices.Grow([]state.VolumeWant(nil), len(wants))
	at := make(map[state.VolumeID]int, len(wants))
	for _, w := range wants {
		i, again := at[w.ID]
		if w.ID == "" || !again {
			if w.ID != "" {
				at[w.ID] = len(merged)
			}
			merged = append(merged, w)
			continue
		}
		first := merged[i]
		names := append(slices.Clone(first.Names), w.Names...)
		if what := differ(first, w); what != "" || first.Unresolved() {
			problem := first.Problem
			if problem == "" {
				problem = fmt.Sprintf("volumes %q and %q of the pod are the same volume %s of driver %s, but differ in %s; want "+
					"them equal",
					first.Names[0], w.Names[0], show(w.Spec.Handle), w.Spec.Driver, what)
			}
			// The entry keeps its id until all are merged, so that a third want is refused too.
			merged[i] = state.VolumeWant{
				Names: names, Problem: problem, Unread: first.Unread,
				Claim: cmp.Or(first.Claim, first.Spec.Claim), ID: w.ID,
			}
			continue
		}
		first.Names, first.Mount.Names = names, names
		first.SizeBytes = max(first.SizeBytes, w.SizeBytes)
		first.HaveBytes = max(first.HaveBytes, w.HaveBytes)
		first.Grown = first.Grown && w.Grown
		first.NoGrow = cmp.Or(first.NoGrow, w.NoGrow)
		merged[i] = first
	}
	for i := range merged {
		if merged[i].Unresolved() {
			merged[i].ID = ""
		} else {
			merged[i].Mount.Names = merged[i].Names
		}
	}
	return merged
}

// refuseSharedTargets refuses each want whose target an earlier one has. Targets contain the
// PersistentVolume's name or, of an inline volume, the pod's own name for it, which may be the same.
func refuseSharedTargets(wants []state.VolumeWant) {
	first := make(map[string]state.VolumeWant, len(wants))
	for i, w := range wants {
		other, taken := first[w.Mount.Target]
		switch {
		case w.Unresolved() || w.Mount.HostPath != "": // for a hostPath nothing is mounted
		case taken:
			wants[i] = state.VolumeWant{Names: w.Names, Claim: w.Spec.Claim, Problem: fmt.Sprintf(
				"volumes %q and %q of the pod would be mounted at the same path, which contains %s; give the inline one "+
					"another name", other.Names[0], w.Names[0], show(w.Spec.Name))}
		default:
			first[w.Mount.Target] = w
		}
	}
}

// differ names the field in which two wants of one volume by one pod contradict
// each other, or returns "" if they agree.
func differ(a, b state.VolumeWant) string {
	if a.Spec.Mode != b.Spec.Mode {
		return "volumeMode"
	}
	if a.Mount.ReadOnly != b.Mount.ReadOnly {
		return "persistentVolumeClaim.readOnly"
	}
	if a.Mount.SELinuxLabel != b.Mount.SELinuxLabel {
		return "the SELinux labels of the containers that mount them"
	}
	// Two PersistentVolumes with one handle differ in name, claim and stage path.
	s := b.Spec
	s.Name, s.Claim, s.StagePath = a.Spec.Name, a.Spec.Claim, a.Spec.StagePath
	if !a.Spec.Equal(&s) {
		return "what their PersistentVolumes " + show(a.Spec.Name) + " and " + show(b.Spec.Name) + " say"
	}
	return ""
}
