package content

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// pemCertificate is the type of a PEM block with a certificate.
const pemCertificate = "CERTIFICATE"

// Anchors returns the certificates of a trust bundle in DER. The bundle must contain at least one
// PEM block, and only certificates of authorities without headers.
func Anchors(bundle string) ([][]byte, error) {
	var all [][]byte
	for rest := []byte(bundle); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != pemCertificate || len(block.Headers) > 0 {
			return nil, fmt.Errorf("found a PEM block of type %.64q or with headers, want %s without headers",
				block.Type, pemCertificate)
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(all)+1, err)
		}
		if !certificate.BasicConstraintsValid || !certificate.IsCA {
			return nil, fmt.Errorf("certificate %d is not a CA certificate", len(all)+1)
		}
		all = append(all, block.Bytes)
	}
	switch begun := strings.Count(bundle, "-----BEGIN "); {
	case begun == 0:
		return nil, errors.New("found no certificate")
	case begun != len(all): // Decode skips invalid blocks
		return nil, errors.New("found a malformed PEM block")
	}
	return all, nil
}

// trust returns the file of a clusterTrustBundle source: the certificates of the named bundle, or
// of all bundles of a signer that the selector matches, without duplicates. They are sorted by
// their bytes, so that the order of the bundles does not matter.
func (r Reader) trust(src corev1.ClusterTrustBundleProjection, d defaults) (Files, error) {
	selected, what, err := selector(src)
	if err != nil {
		return nil, err
	}
	bundles, err := r.Objects.TrustBundles()
	if err != nil {
		return nil, fmt.Errorf("list ClusterTrustBundles: %w", err)
	}
	bundles = slices.DeleteFunc(slices.Clone(bundles), func(b *certificatesv1.ClusterTrustBundle) bool {
		return !selected(b)
	})
	if optional := src.Optional != nil && *src.Optional; len(bundles) == 0 && !optional {
		return nil, fmt.Errorf("%s: %w; want it, or optional: true", what, ErrNotFound)
	}
	var anchors [][]byte
	for _, b := range bundles {
		some, err := Anchors(b.Spec.TrustBundle)
		if err != nil {
			return nil, fmt.Errorf("ClusterTrustBundle %s: %w", b.Name, err)
		}
		anchors = append(anchors, some...)
	}
	slices.SortFunc(anchors, bytes.Compare)
	var text bytes.Buffer
	for _, der := range slices.CompactFunc(anchors, bytes.Equal) {
		if err := pem.Encode(&text, &pem.Block{Type: pemCertificate, Bytes: der}); err != nil {
			return nil, err
		}
	}
	file, err := r.ownedFile(d, src.User)
	if err != nil {
		return nil, err
	}
	file.Data = text.Bytes()
	files := Files{}
	if err := files.put(src.Path, file); err != nil {
		return nil, fmt.Errorf("path: %w", err)
	}
	return files, nil
}

// selector returns a function that reports whether the source includes a bundle, and a description
// for messages.
func selector(src corev1.ClusterTrustBundleProjection) (selected func(*certificatesv1.ClusterTrustBundle) bool,
	what string, err error,
) {
	switch {
	case (src.Name != nil) == (src.SignerName != nil):
		return nil, "", errors.New("want exactly one of name and signerName")
	case src.Name != nil && src.LabelSelector != nil:
		return nil, "", errors.New("labelSelector: goes with signerName only, not with name")
	case src.Name != nil:
		return func(b *certificatesv1.ClusterTrustBundle) bool {
			return b.Name == *src.Name
		}, fmt.Sprintf("ClusterTrustBundle %.253q", *src.Name), nil
	}
	// A nil selector matches nothing; an empty one matches everything.
	labelled, err := metav1.LabelSelectorAsSelector(src.LabelSelector)
	if err != nil {
		return nil, "", fmt.Errorf("labelSelector: %w", err)
	}
	what = fmt.Sprintf("a ClusterTrustBundle of signer %.571q that labelSelector selects", *src.SignerName)
	if src.LabelSelector == nil {
		what += " (a missing labelSelector selects nothing)"
	}
	return func(b *certificatesv1.ClusterTrustBundle) bool {
		return b.Spec.SignerName == *src.SignerName && labelled.Matches(labels.Set(b.Labels))
	}, what, nil
}
