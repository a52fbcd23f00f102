package source

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// refusals is a sink that counts, by pod, the volumes that are refused in the newest word of it.
type refusals map[string]int

func (r refusals) SetPod(w state.PodWant) {
	r[w.Pod.Name] = 0
	for _, v := range w.Volumes {
		if v.Unresolved() {
			r[w.Pod.Name]++
		}
	}
}

func (r refusals) RemovePod(state.PodUID) {}

func (r refusals) SourceSynced(string) {}

// limited returns a catalog with a limit of two volumes a pod. Volumes of pods remain if remains is set.
func limited(remains *bool) (*Catalog, refusals) {
	said := refusals{}
	return New(Config{
		Sink: said, Remains: func(state.PodUID) bool { return *remains },
		Resolve: resolve.Config{VolumesPerPod: 2, Layout: state.Layout{Root: "/r"}, Builtins: []state.DriverName{kind.EmptyDir}},
	}), said
}

// podOfMany returns a pod whose container uses n emptyDirs.
func podOfMany(name string, n int) *corev1.Pod {
	p := withUID("shop", name, "u")
	p.Spec.Containers = []corev1.Container{{Name: "c"}}
	for i := range n {
		v := fmt.Sprintf("v%d", i)
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: v, MountPath: "/" + v})
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: v, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	}
	return p
}

// recorded are records of a pod with the volumes v0 and on.
func recorded(pod string, n int) map[state.VolumeID]state.Volume {
	all := map[state.VolumeID]state.Volume{}
	for i := range n {
		id := state.PodVolumeID(kind.EmptyDir, "u", fmt.Sprintf("v%d", i))
		of := state.Pod{Namespace: "shop", Name: pod, UID: "u"}
		if pod == "" {
			of = state.Pod{UID: "u"}
		}
		all[id] = state.Volume{ID: id, Mounts: map[state.PodUID]state.Mount{"u": {MountSpec: state.MountSpec{Pod: of, Names: []string{fmt.Sprintf("v%d", i)}}}}}
	}
	return all
}

// What a pod has by the records stays its own when the limit is new, whether its source or the records are quicker; what it
// asks for besides is refused. Another pod with its UID gets nothing by that, nor does the pod that comes after it.
func TestALimitTakesNothingAway(t *testing.T) {
	for name, tc := range map[string]struct {
		records string // the pod that the records name
		has     int
		refused int
	}{
		"all of them":             {"large", 4, 0},
		"some":                    {"large", 3, 1},
		"none":                    {"large", 0, 4},
		"a pod without a name":    {"", 4, 0},
		"another pod had the uid": {"other", 4, 4},
	} {
		for _, early := range []bool{false, true} {
			remains := false
			c, said := limited(&remains)
			if early {
				mustPut(t, c, "file", podOfMany("large", 4))
			}
			c.RecordedVolumes(recorded(tc.records, tc.has))
			if !early {
				mustPut(t, c, "file", podOfMany("large", 4))
			}
			if got := said["large"]; got != tc.refused {
				t.Errorf("%s, the source quicker %v: %d volumes are refused, want %d", name, early, got, tc.refused)
			}
			c.Delete("file", podOf("shop", "large"))
			mustPut(t, c, "file", podOfMany("large", 4))
			if got := said["large"]; got != 4 {
				t.Errorf("%s, the source quicker %v: %d volumes of the pod that came again are refused, want 4", name, early, got)
			}
		}
	}
}

// A pod within the limit keeps its volumes when it asks for more than the limit.
func TestAPodThatAsksForMoreKeepsWhatItHas(t *testing.T) {
	remains := false
	c, said := limited(&remains)
	for i, tc := range []struct{ asks, refused int }{{2, 0}, {5, 3}, {5, 3}, {6, 4}} {
		mustPut(t, c, "file", podOfMany("large", tc.asks))
		if got := said["large"]; got != tc.refused {
			t.Errorf("step %d: %d of %d volumes are refused, want %d", i, got, tc.asks, tc.refused)
		}
	}
}
