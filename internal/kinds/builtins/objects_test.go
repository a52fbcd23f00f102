package builtins

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// silent is a sink that ignores everything.
type silent struct{}

func (silent) SetPod(state.PodWant)   {}
func (silent) RemovePod(state.PodUID) {}
func (silent) SourceSynced(string)    {}

// Downward API files show the resources that the Node says pods may use, and those of the
// host until the Node says otherwise.
func TestFilesSayWhatTheNodeIsToGive(t *testing.T) {
	catalog := source.New(source.Config{Resolve: resolve.Config{NodeName: "n1"}, Sink: silent{}})
	has := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourceCPU: resource.MustParse("4")}
	o := Catalog{NodeName: "n1", Resources: has, Objects: func() *source.Catalog { return catalog }}
	expect := func(memory, cpu string) {
		t.Helper()
		got := o.Allocatable()
		if got.Memory().String() != memory || got.Cpu().String() != cpu {
			t.Errorf("got %v, want memory %s and cpu %s", got, memory, cpu)
		}
	}
	expect("8Gi", "4")
	for _, name := range []string{"n2", "n1"} {
		node := &resolve.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Allocatable: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("6Gi")}}
		if err := catalog.Put("kube", node); err != nil {
			t.Fatal(err)
		}
		if name == "n2" {
			expect("8Gi", "4")
		}
	}
	expect("6Gi", "4")
}
