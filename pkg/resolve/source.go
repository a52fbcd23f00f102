package resolve

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The built-in kinds that can be resolved, by plugin name.
const (
	EmptyDir    state.DriverName = "kubernetes.io/empty-dir"
	ConfigMap   state.DriverName = "kubernetes.io/configmap"
	HostPath    state.DriverName = "kubernetes.io/host-path"
	Local       state.DriverName = "kubernetes.io/local-volume"
	NFS         state.DriverName = "kubernetes.io/nfs"
	ISCSI       state.DriverName = "kubernetes.io/iscsi"
	FC          state.DriverName = "kubernetes.io/fc"
	Image       state.DriverName = "kubernetes.io/image"
	CephFS      state.DriverName = "kubernetes.io/cephfs"
	GlusterFS   state.DriverName = "kubernetes.io/glusterfs"
	Secret      state.DriverName = "kubernetes.io/secret"
	DownwardAPI state.DriverName = "kubernetes.io/downward-api"
	Projected   state.DriverName = "kubernetes.io/projected"
)

// builtins are the kinds above by the name of their source in a pod.
var builtins = map[string]state.DriverName{
	"configMap":   ConfigMap,
	"downwardAPI": DownwardAPI,
	"emptyDir":    EmptyDir,
	"fc":          FC,
	"glusterfs":   GlusterFS,
	"hostPath":    HostPath,
	"image":       Image,
	"iscsi":       ISCSI,
	"nfs":         NFS,
	"projected":   Projected,
	"secret":      Secret,
}

// sources lists the names of the sources that are set in one of Kubernetes'
// source structs, which hold one pointer for each kind.
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

// sourceKind returns the name of the one source that is set in s. A pod's
// volume without a source is an emptyDir, as the API server has it.
func sourceKind(field string, s any) (kind string, f Fault, bad bool) {
	set := sources(s)
	switch len(set) {
	case 0:
		return "emptyDir", Fault{}, false
	case 1:
		return set[0], Fault{}, false
	}
	return "", Fault{field, strings.Join(set, " and "), "exactly one kind of volume"}, true
}

// kinds lists the kinds of volumes that a pod may have here.
func (r *resolver) kinds() []string {
	k := append([]string{"csi", "ephemeral", "persistentVolumeClaim"}, r.inTreeKinds()...)
	for name, driver := range builtins {
		if r.has(driver) {
			k = append(k, name)
		}
	}
	slices.Sort(k)
	return k
}

// mergeSame makes one entry of entries that name one volume, as two claims'
// volumes with one handle or two of the pod's volumes with one claim do. wants
// is sorted by name; the first one's spec stands for all.
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
		if what := differ(first, w); what != "" || first.Problem != "" {
			problem := first.Problem
			if problem == "" {
				problem = fmt.Sprintf("volumes %q and %q of the pod are the same volume %s of driver %s, but differ in %s; want them equal",
					first.Names[0], w.Names[0], show(w.Spec.Handle), w.Spec.Driver, what)
			}
			// The id stays until all are merged, so that a third one is refused too.
			merged[i] = state.VolumeWant{Names: names, Problem: problem, Unread: first.Unread, ID: w.ID}
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
		if merged[i].Problem != "" {
			merged[i].ID = ""
		} else {
			merged[i].Mount.Names = merged[i].Names
		}
	}
	return merged
}

// differ says in what two wants of one volume by one pod contradict each other;
// "" where they do not.
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
	// Two PersistentVolumes with one handle have two names, and what is made of them.
	s := b.Spec
	s.Name, s.Claim, s.StagePath = a.Spec.Name, a.Spec.Claim, a.Spec.StagePath
	if !a.Spec.Equal(&s) {
		return "what their PersistentVolumes " + show(a.Spec.Name) + " and " + show(b.Spec.Name) + " say"
	}
	return ""
}
