package resolve

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Names are what Kubernetes and CSI say that they are.
func TestNamesAreWhatOthersTakeForOnes(t *testing.T) {
	uid := regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)
	driver := regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?$`) // CSI 1.13, GetPluginInfoResponse
	rules := map[string]struct{ ours, theirs func(string) bool }{
		"label":     {isLabel, func(s string) bool { return len(validation.IsDNS1123Label(s)) == 0 }},
		"subdomain": {isSubdomain, func(s string) bool { return len(validation.IsDNS1123Subdomain(s)) == 0 }},
		"uid":       {isUID, uid.MatchString},
		"driver":    {func(s string) bool { _, bad := checkDriver("", s); return !bad }, driver.MatchString},
	}
	agree := func(s string) {
		for name, r := range rules {
			if got, want := r.ours(s), r.theirs(s); got != want {
				t.Errorf("%q is a %s: %v, want %v", s, name, got, want)
			}
		}
	}
	for _, n := range []int{0, 1, 2, 62, 63, 64, 65, 252, 253, 254} {
		for _, c := range []string{"a", "Z", "0", "-", ".", "a.", "a-"} {
			agree(strings.Repeat(c, n)[:n])
			agree(strings.Repeat(c, n)[:n] + "a")
		}
	}
	const seed = 1
	rng := rand.New(rand.NewPCG(seed, seed))
	for range 5_000 {
		b := make([]byte, rng.IntN(6))
		for i := range b {
			b[i] = "azAZ09-._/\n\x00\xc3"[rng.IntN(13)]
		}
		agree(string(b))
	}
}

// BenchmarkCheck is a pod with one volume, as each of a burst is checked.
func BenchmarkCheck(b *testing.B) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-0", Namespace: "default", UID: types.UID("8d7f2b1e-0000-8000-8000-000000000001")},
		Spec: corev1.PodSpec{ServiceAccountName: "default", Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-web-0"},
		}}}},
	}
	b.ReportAllocs()
	for b.Loop() {
		if faults := Check(pod); len(faults) > 0 {
			b.Fatal(faults)
		}
	}
}
