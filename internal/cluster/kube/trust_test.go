package kube_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
)

// root is the certificate of an authority.
const root = `-----BEGIN CERTIFICATE-----
MIIBRDCB96ADAgECAhQ9nYuHykTX/bA5ZeGs4HXOqukKHDAFBgMrZXAwFzEVMBMG
A1UEAwwMRXhhbXBsZSByb290MCAXDTI2MTEyMjA4NTYzMFoYDzIxMjYxMDI5MDg1
NjMwWjAXMRUwEwYDVQQDDAxFeGFtcGxlIHJvb3QwKjAFBgMrZXADIQBfcZs2bf3j
VIn7Cj6k+Uuh3U/tkhNTaQuSFFc1frpyVKNTMFEwHQYDVR0OBBYEFLh9ZklvUxfv
ebqn1//o7gdhXjD4MB8GA1UdIwQYMBaAFLh9ZklvUxfvebqn1//o7gdhXjD4MA8G
A1UdEwEB/wQFMAMBAf8wBQYDK2VwA0EAkzs//sqdFrDVnydr9VIGIu3mimvlFTZF
b3HiDKc5fYunL3adNjqwgTtGwpmOxfxaGYXRvmpSes79BfwlRMx7Ag==
-----END CERTIFICATE-----
`

func bundle(name, signer, text string) *certificatesv1.ClusterTrustBundle {
	b := &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: name}}
	b.Spec.SignerName, b.Spec.TrustBundle = signer, text
	return b
}

func trusting(name string, src corev1.ClusterTrustBundleProjection) *corev1.Pod {
	src.Path = "ca.pem"
	return pod(name, corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ClusterTrustBundle: &src}}}})
}

// TestAnOlderServersTrustBundlesAreRead: the server has them as v1beta1 only.
//
// Items: L11.
func TestAnOlderServersTrustBundlesAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := "plain"
		w := start(t, func(s *fakeapi.Server) {
			s.Fail(func(r fakeapi.Request) *fakeapi.Answer {
				if r.Resource == "clustertrustbundles" && r.API == "v1" {
					return &fakeapi.Answer{Code: 404}
				}
				return nil
			})
			s.Put(trusting("a", corev1.ClusterTrustBundleProjection{Name: &name}))
		})
		w.expect("a", "not found; want it", "")
		for range 2 {
			w.server.Put(bundle(name, "", root))
			advance(time.Second)
			w.expect("a", "", "")
			w.server.Delete("clustertrustbundles", name)
			advance(time.Second)
			w.expect("a", "not found; want it", "")
			w.server.Put(bundle(name, "", root))
			w.server.EndWatches()
			advance(time.Minute)
			w.expect("a", "", "")
		}
	})
}

// TestTrustBundlesAreFollowedWhileAPodHasAny: one list and one watch bring every change. An outage changes nothing,
// and after the last pod the provider forgets all of them.
//
// Items: L11.
func TestTrustBundlesAreFollowedWhileAPodHasAny(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signer := "x.y/z"
		w := start(t, func(s *fakeapi.Server) {
			s.Fail(func(r fakeapi.Request) *fakeapi.Answer {
				if r.Resource == "clustertrustbundles" {
					return &fakeapi.Answer{Code: 503}
				}
				return nil
			})
			s.Put(bundle("x.y:z:1", signer, root), bundle("plain", "", root))
			s.Put(trusting("a", corev1.ClusterTrustBundleProjection{SignerName: &signer, LabelSelector: &metav1.LabelSelector{}}))
		})
		w.expect("a", "not read", "")
		w.server.Fail(nil)
		advance(time.Minute)
		w.expect("a", "", "")
		if asked := slices.DeleteFunc(w.asked(), func(r string) bool { return !strings.Contains(r, "trust") }); slices.ContainsFunc(asked, func(r string) bool { return r != "list clustertrustbundles" }) {
			t.Errorf("asked %q", asked)
		}
		first := w.volume("a").Revision
		w.server.Put(bundle("x.y:z:2", signer, root+root))
		w.server.Put(bundle("x.y:o:1", "x.y/o", root))
		advance(time.Second)
		if got := w.volume("a").Revision; got != first { // the same certificate
			t.Error("a bundle of the same certificates changes the volume")
		}
		name := "plain"
		w.server.Put(trusting("b", corev1.ClusterTrustBundleProjection{Name: &name}))
		advance(time.Second)
		w.expect("b", "", "")
		w.server.Delete("clustertrustbundles", "plain")
		advance(time.Second)
		w.expect("b", "not found", "")
		w.expect("a", "", "")
		w.server.Delete("clustertrustbundles", "x.y:z:1")
		w.server.Compact()
		w.server.EndWatches()
		w.server.Delete("clustertrustbundles", "x.y:z:2") // during an interruption of the watch
		advance(time.Minute)
		w.expect("a", "not found", "")
		w.server.Put(bundle("x.y:z:3", signer, root))
		advance(time.Second)
		w.expect("a", "", "")
		w.server.Delete("pods", "default/a")
		w.server.Delete("pods", "default/b")
		advance(time.Second)
		if left := w.catalog.TrustBundles(); len(left) != 0 {
			t.Errorf("no pod needs them, and there are %d", len(left))
		}
		w.server.Put(trusting("c", corev1.ClusterTrustBundleProjection{SignerName: &signer, LabelSelector: &metav1.LabelSelector{}}))
		advance(time.Second)
		w.expect("c", "", "")
	})
}
