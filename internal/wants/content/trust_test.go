package content_test

import (
	"crypto/ed25519"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/content"
)

// authority returns a certificate in PEM, of an authority if is is set.
func authority(t *testing.T, name string, is bool) string {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, BasicConstraintsValid: true, IsCA: is}
	der, err := x509.CreateCertificate(nil, c, c, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// names returns the subjects of the certificates in a file, in their order.
func names(t *testing.T, file content.File) []string {
	t.Helper()
	var all []string
	for block, rest := pem.Decode(file.Data); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c.Subject.CommonName)
	}
	return all
}

func bundle(name, signer, text string, labels map[string]string) *certificatesv1.ClusterTrustBundle {
	b := &certificatesv1.ClusterTrustBundle{Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: text}}
	b.Name, b.Labels = name, labels
	return b
}

// A source has one bundle by name, or all bundles of a signer that a selector selects, each
// certificate once; if none is found, that is an error, or an empty file for an optional source.
//
// Items: L11.
func TestTrustBundlesByNameOrSigner(t *testing.T) {
	a, b, c, other := authority(t, "a", true), authority(t, "b", true), authority(t, "c", true), authority(t, "other", true)
	w := newWorld(t)
	w.bundles = []*certificatesv1.ClusterTrustBundle{
		bundle("plain", "", a, nil),
		bundle("x.y:z:1", "x.y/z", "a comment\n"+b+a+"\nmore\n", map[string]string{"v": "1"}),
		bundle("x.y:z:2", "x.y/z", b+c, map[string]string{"v": "2"}),
		bundle("x.y:o:1", "x.y/o", other, map[string]string{"v": "1"}),
	}
	for _, tc := range []struct {
		source, want, problem string
	}{
		{"name: plain", "a", ""},
		{`name: "x.y:z:1"`, "a b", ""},
		{"signerName: x.y/z, labelSelector: {}", "a b c", ""},
		{"signerName: x.y/z, labelSelector: {matchLabels: {v: '2'}}", "b c", ""},
		{"signerName: x.y/z, labelSelector: {matchExpressions: [{key: v, operator: NotIn, values: ['2']}]}", "a b", ""},
		{"name: nope, optional: true", "", ""},
		{"signerName: x.y/z, optional: true", "", ""},
		{"signerName: x.y/z, labelSelector: {matchLabels: {v: '3'}}, optional: true", "", ""},
		{"name: nope", "", `ClusterTrustBundle "nope": not found; want it, or optional: true`},
		{"signerName: x.y/z", "", "selects nothing"},
		{"signerName: x.y/none, labelSelector: {}", "", `signer "x.y/none"`},
		{"name: plain, signerName: x.y/z", "", "exactly one of name and signerName"},
		{"labelSelector: {}", "", "exactly one of name and signerName"},
		{"name: plain, labelSelector: {}", "", "labelSelector: goes with signerName only"},
		{"signerName: x.y/z, labelSelector: {matchExpressions: [{key: v, operator: Is}]}", "", "labelSelector: "},
	} {
		text := "sources: [{clusterTrustBundle: {path: trust/ca.pem, " + tc.source + "}}]"
		files, err := w.reader().Projected(decode[corev1.ProjectedVolumeSource](t, text))
		if tc.problem != "" {
			wantError(t, err, "sources[0].clusterTrustBundle: ", tc.problem)
			continue
		}
		file, ok := files["trust/ca.pem"]
		got := names(t, file)
		slices.Sort(got)
		if err != nil || !ok || file.Mode != 0o644 || strings.Join(got, " ") != tc.want || strings.Contains(string(file.Data), "comment") {
			t.Errorf("%s: got %q of mode %o, %v, want %q", tc.source, got, file.Mode, err, tc.want)
		}
		slices.Reverse(w.bundles)
		again, err := w.reader().Projected(decode[corev1.ProjectedVolumeSource](t, text))
		if err != nil || again.Revision(nil) != files.Revision(nil) {
			t.Errorf("%s: another order of bundles is other content: %v", tc.source, err)
		}
	}
	w.pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: new(int64(7))}
	files, err := w.reader().Projected(decode[corev1.ProjectedVolumeSource](t, "sources: [{clusterTrustBundle: {path: f, name: plain}}]"))
	if err != nil || files["f"].Mode != 0o600 {
		t.Errorf("of a pod with fsGroup: mode %o, %v", files["f"].Mode, err)
	}
	w.err = errors.New("malformed PEM block")
	if _, err := w.reader().Projected(decode[corev1.ProjectedVolumeSource](t, "sources: [{clusterTrustBundle: {path: f, name: nope, optional: true}}]")); !errors.Is(err, w.err) {
		t.Errorf("got %v, want that it is not known", err)
	}
}

// A bundle has CA certificates only; one that cannot be read is an error and not skipped.
func TestOnlyAuthoritiesAreTrusted(t *testing.T) {
	good := authority(t, "a", true)
	for text, problem := range map[string]string{
		"":                       "no certificate",
		"text":                   "no certificate",
		authority(t, "b", false): "not a CA certificate",
		good + strings.Replace(good, "-----END CERTIFICATE-----", "", 1): "malformed PEM block",
		strings.ReplaceAll(good, "CERTIFICATE", "PRIVATE KEY"):           "of type",
		strings.Replace(good, "-----\n", "-----\nA: b\n\n", 1):           "with headers",
		"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n": "certificate 1",
	} {
		if _, err := content.Anchors(text); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%q: got %v, want %q", text, err, problem)
		}
	}
	if all, err := content.Anchors(good + "\n# and\n" + good); err != nil || len(all) != 2 {
		t.Errorf("got %d, %v", len(all), err)
	}
}
