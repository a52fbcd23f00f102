//go:build cluster

package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const signerName = "example.test/servers"

// authority signs certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         string
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: signerName}, BasicConstraintsValid: true, IsCA: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	certificate, err := x509.ParseCertificate(der)
	must(t, err)
	return authority{certificate, key, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
}

// sign answers the node's open requests, and reports whether there was one.
func (a authority) sign(t *testing.T, node string) bool {
	t.Helper()
	requests := control.client.CertificatesV1beta1().PodCertificateRequests("default")
	all, err := requests.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	must(t, err)
	signed := false
	for _, r := range all.Items {
		if len(r.Status.Conditions) > 0 {
			continue
		}
		stub, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
		must(t, err)
		from := time.Now().Add(-time.Minute).Truncate(time.Second)
		to, refresh := from.Add(2*time.Hour), from.Add(time.Hour)
		template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: r.Spec.PodName}, NotBefore: from, NotAfter: to}
		der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, stub.PublicKey, a.key)
		must(t, err)
		r.Status = certificatesv1beta1.PodCertificateRequestStatus{
			CertificateChain: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
			NotBefore:        &metav1.Time{Time: from}, BeginRefreshAt: &metav1.Time{Time: refresh}, NotAfter: &metav1.Time{Time: to},
			Conditions: []metav1.Condition{{Type: "Issued", Status: metav1.ConditionTrue, Reason: "Issued", LastTransitionTime: metav1.Now()}},
		}
		_, err = requests.UpdateStatus(t.Context(), &r, metav1.UpdateOptions{})
		must(t, err)
		signed = true
	}
	return signed
}

// A pod's volume has the trust bundle of a signer and a certificate that the signer issues,
// all under the node's own identity.
//
// Items: L11, L12.
func TestCertificatesOfTheCluster(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	a := newAuthority(t)
	_, err := control.client.CertificatesV1beta1().ClusterTrustBundles().Create(ctx, &certificatesv1beta1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: "example.test:servers:1"},
		Spec:       certificatesv1beta1.ClusterTrustBundleSpec{SignerName: signerName, TrustBundle: a.pem},
	}, metav1.CreateOptions{})
	must(t, err)
	const user = "system:node:notary"
	id, err := control.identity(user, "system:nodes")
	must(t, err)
	n := newNode(t, "notary", id)
	n.stop()
	no, signer := false, signerName
	_, err = control.client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "certified"},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: &no, NodeName: "notary",
			Containers: []corev1.Container{{Name: "c", Image: "none", VolumeMounts: []corev1.VolumeMount{{Name: "tls", MountPath: "/tls"}}}},
			Volumes: []corev1.Volume{{Name: "tls", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{SignerName: &signer, LabelSelector: &metav1.LabelSelector{}, Path: "ca.pem"}},
				{PodCertificate: &corev1.PodCertificateProjection{SignerName: signer, KeyType: "ECDSAP256", CredentialBundlePath: "tls.pem"}},
			}}}}},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	n.knows("certified")
	n.start()
	n.eventually("a certificate is asked for", func() bool { return a.sign(t, "notary") })
	at := n.mounted("certified")
	roots, bundle := filepath.Join(at, "ca.pem"), filepath.Join(at, "tls.pem")
	text, err := os.ReadFile(bundle)
	must(t, err)
	pair, err := tls.X509KeyPair(text, text)
	must(t, err)
	pool := x509.NewCertPool()
	ca, err := os.ReadFile(roots)
	must(t, err)
	if !pool.AppendCertsFromPEM(ca) {
		t.Errorf("no certificate in %s", ca)
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil || pair.Leaf.Subject.CommonName != "certified" {
		t.Errorf("%s: %v", pair.Leaf.Subject, err)
	}
	n.gone("certified")
	noRefusals(t, user, "persistentvolumeclaims", "volumeattachments")
}
