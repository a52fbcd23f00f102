package ephemeral

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

func TestWhatIsDoneForAClaim(t *testing.T) {
	for _, tt := range []struct {
		name string
		f    facts
		want step
		wait string
	}{
		{"no pod asks", facts{}, stay, ""},
		{"a pod asks", facts{asked: true}, create, ""},
		{"another source may list one yet", facts{asked: true, silent: true}, stay, "not every source"},
		{"another source's cannot be read", facts{asked: true, unread: "bad"}, stay, "bad"},
		{"another source has one", facts{asked: true, other: "api"}, stay, ""},
		{"an earlier claim left data", facts{asked: true, left: "volume pvc-1"}, stay, "volume pvc-1"},
		{"its pod is listed", facts{made: true, listed: true, asked: true}, stay, ""},
		{"its pod is listed, and another asks", facts{made: true, listed: true, asked: true, user: "pod x"}, stay, ""},
		{"its pod may be listed yet", facts{made: true, silent: true}, stay, "not every source"},
		{"its pod cannot be read", facts{made: true, unread: "bad"}, stay, "bad"},
		{"its pod is gone", facts{made: true}, end, ""},
		{"its pod is gone, and another asks", facts{made: true, asked: true}, end, ""},
		{"its pod is gone, by a lossy journal", facts{made: true, lost: true}, stay, "csi-volmgr journal accept"},
		{"it goes", facts{made: true, going: true}, erase, ""},
		{"it goes, and its pod came back", facts{made: true, going: true, listed: true, asked: true}, erase, ""},
		{"it goes, and another pod uses it", facts{made: true, going: true, user: "pod x"}, stay, ""},
		{"it goes, by a lossy journal", facts{made: true, going: true, lost: true}, stay, "csi-volmgr journal accept"},
		{"it goes, and another source has it", facts{made: true, going: true, other: "api"}, drop, ""},
	} {
		got, wait := next(tt.f)
		if got != tt.want || !strings.Contains(wait, tt.wait) || tt.wait == "" && wait != "" {
			t.Errorf("%s: got %v, %q; want %v, %q", tt.name, got, wait, tt.want, tt.wait)
		}
	}
}

func TestAClaimIsItsPods(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"}}
	v := corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv"},
		},
	}}}
	c := newClaim(pod, v)
	if c.Namespace != "shop" || c.Name != "web-data" || c.Labels["a"] != "b" || c.Annotations["c"] != "d" || c.Spec.VolumeName != "pv" {
		t.Errorf("%+v", c)
	}
	if !metav1.IsControlledBy(c, pod) || !*c.OwnerReferences[0].BlockOwnerDeletion {
		t.Errorf("%+v", c.OwnerReferences)
	}
	again := newClaim(pod, v)
	pod.UID = "2"
	if other := newClaim(pod, v); c.UID != again.UID || c.UID == other.UID || c.UID == resolve.UID(claimKey("shop", "web-data")) {
		t.Errorf("uids %s, %s, %s", c.UID, again.UID, other.UID)
	}
	r := record{Claim: c}
	value, err := encode(r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decode("shop/web-data", value)
	if err != nil {
		t.Fatal(err)
	}
	if key, uid := got.owner(); key != (source.Key{Kind: resolve.KindPod, Namespace: "shop", Name: "web"}) || uid != types.UID("1") {
		t.Errorf("%v, %s", key, uid)
	}
	for name, value := range map[string]string{
		"shop/other": string(value), "shop/web-data": "{}", "shop/later": strings.Replace(string(value), `"version":1`, `"version":2`, 1),
	} {
		if _, err := decode(name, []byte(value)); err == nil {
			t.Errorf("%s: a row that is not its claim's is taken", name)
		}
	}
}
