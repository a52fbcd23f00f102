package resolve_test

import (
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
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

// TestTrustBundlesAreOfTheirSigners: by their names, and with certificates only.
//
// Items: L11.
func TestTrustBundlesAreOfTheirSigners(t *testing.T) {
	for _, tc := range []struct{ name, signer, text, want string }{
		{"plain", "", root, ""},
		{"x.y:z:1", "x.y/z", root, ""},
		{"x.y:z/a:1", "x.y/z/a", root, `metadata.name: found "x.y:z/a:1", want one that begins with x.y:z:a:`},
		{"x.y:z:a:1", "x.y/z/a", root, ""},
		{"plain:1", "", root, `metadata.name: found plain:1, want`},
		{"plain", "x.y/z", root, "metadata.name: found plain, want one that begins with x.y:z:"},
		{"x.y:z:../1", "x.y/z", root, "metadata.name"},
		{"x.y:z:", "x.y/z", root, "metadata.name"},
		{"..", "", root, "metadata.name"},
		{"z:1", "z", root, "spec.signerName: found z, want DOMAIN/NAME"},
		{"plain", "", "", "spec.trustBundle"},
		{"plain", "", strings.ReplaceAll(root, "CERTIFICATE", "PRIVATE KEY"), "spec.trustBundle"},
	} {
		b := &certificatesv1.ClusterTrustBundle{Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: tc.signer, TrustBundle: tc.text}}
		b.Name = tc.name
		got := ""
		if faults := resolve.Check(b); len(faults) > 0 {
			got = faults[0].String()
		}
		if !strings.Contains(strings.ReplaceAll(got, `"plain:1"`, "plain:1"), tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("%s of %q: got %q, want %q", tc.name, tc.signer, got, tc.want)
		}
	}
}

// TestAVolumeFollowsTheBundlesThatItSelects: bundles of other signers neither give the volume content nor change its
// revision.
//
// Items: L11.
func TestAVolumeFollowsTheBundlesThatItSelects(t *testing.T) {
	const text = `
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: default, uid: 0a1b}, spec: {
  containers: [{name: a, volumeMounts: [{name: v, mountPath: /v}]}],
  volumes: [{name: v, projected: {sources: [{clusterTrustBundle: {signerName: x.y/z, labelSelector: {}, path: ca.pem}}]}}]}}`
	w := parse(t, text)
	w.config.Builtins = append(w.config.Builtins, kind.Projected)
	if got := w.only(t).Problem; !strings.Contains(got, "not found") {
		t.Errorf("without any: %q", got)
	}
	put := func(name, signer string) {
		b := &certificatesv1.ClusterTrustBundle{Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: root}}
		b.Name = name
		w.objects[resolve.Key{Kind: resolve.KindTrustBundle, Name: name}] = b
	}
	put("plain", "")
	if got := w.only(t).Problem; !strings.Contains(got, "not found") {
		t.Errorf("with another's only: %q", got)
	}
	put("x.y:z:1", "x.y/z")
	first := w.only(t)
	if first.Problem != "" || first.Revision == "" {
		t.Errorf("%+v", first)
	}
	w.drop(resolve.KindTrustBundle, "", "plain")
	if got := w.only(t); got.Revision != first.Revision {
		t.Error("another's going changes the volume")
	}
	w.unread = map[resolve.Key]string{{Kind: resolve.KindTrustBundles}: "not read yet"}
	if got := w.only(t).Problem; !strings.Contains(got, "not read yet") {
		t.Errorf("where more may be there: %q", got)
	}
}
