package source

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// deaf is a sink that takes everything.
type deaf struct{}

func (deaf) SetPod(state.PodWant)   {}
func (deaf) RemovePod(state.PodUID) {}
func (deaf) SourceSynced(string)    {}

// Pods come and go for months, each with a name of its own. When they are gone, and the provider has
// forgotten what they named, the catalog holds nothing of them.
func TestNothingStaysOfPodsThatAreGone(t *testing.T) {
	const remote = "cluster"
	for _, provider := range []string{remote, "file"} {
		c := New(Config{Sink: deaf{}, Remote: remote})
		for i := range 100 {
			name := fmt.Sprint("job-", i)
			claim := Key{Kind: resolve.KindClaim, Namespace: "n", Name: name}
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID(name)},
				Spec: corev1.PodSpec{
					Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
						PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
					}}},
					Containers: []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}},
				},
			}
			if err := c.Put(provider, pod); err != nil {
				t.Fatal(err)
			}
			if provider == remote {
				if err := c.Apply(remote, Update{Remote: Remote{Absent: []Key{claim}}}); err != nil {
					t.Fatal(err)
				}
			}
			c.Delete(provider, Key{Kind: resolve.KindPod, Namespace: "n", Name: name})
			if err := c.Apply(remote, Update{Remote: Remote{Forget: []Key{claim}}}); err != nil {
				t.Fatal(err)
			}
		}
		for what, n := range map[string]int{
			"pods": len(c.objects[resolve.KindPod]) + len(c.pods), "uids": len(c.uids), "wants": len(c.published) + len(c.left),
			"users": len(c.users), "lists": len(c.index.members), "absent": len(c.remote.absent), "unread": len(c.remote.why),
			"asked": len(c.remote.asked),
		} {
			if n != 0 {
				t.Errorf("%s: %d %s are left", provider, n, what)
			}
		}
	}
}
