package kind

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// fields returns the names of the sources in one of Kubernetes' source structs.
func fields(of any) []string {
	var names []string
	for f := range reflect.TypeOf(of).Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// Each row names a source that Kubernetes has there, and no source twice.
func TestRowsAreOfKubernetes(t *testing.T) {
	inPod, inPV := fields(corev1.VolumeSource{}), fields(corev1.PersistentVolumeSource{})
	all := All()
	if !slices.IsSortedFunc(all, func(a, b Kind) int { return strings.Compare(string(a.Name), string(b.Name)) }) {
		t.Error("the table is not sorted by name")
	}
	for i, k := range all {
		if k.Pod && !slices.Contains(inPod, k.Field) || k.PV && !slices.Contains(inPV, k.Field) || !k.Pod && !k.PV {
			t.Errorf("%s: no object of Kubernetes has the source %q where the table says so", k.Name, k.Field)
		}
		if !strings.HasPrefix(string(k.Name), Prefix) {
			t.Errorf("%s: want a name that begins with %s", k.Name, Prefix)
		}
		if got, ok := Of(k.Name); !ok || got != k {
			t.Errorf("Of(%s) is %+v", k.Name, got)
		}
		if got, ok := OfField(k.Field); !ok || got != k {
			t.Errorf("OfField(%s) is %+v", k.Field, got)
		}
		if i > 0 && all[i-1].Name == k.Name {
			t.Errorf("%s is there twice", k.Name)
		}
		if k.Stages && k.Grows || k.Forced && !k.Mounts || k.Wrapped && !k.Kept {
			t.Errorf("%s: abilities that contradict each other: %+v", k.Name, k)
		}
	}
	if k, ok := Of("a.driver.example"); ok || k != (Kind{}) {
		t.Errorf("a CSI driver is the kind %+v", k)
	}
}

// A caller that changes the result of All changes nothing for another.
func TestAllIsACopy(t *testing.T) {
	All()[0].Mounts = false
	if k, _ := Of(CephFS); !k.Mounts {
		t.Error("the table was changed")
	}
}
