package content

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// certificate returns the files of a podCertificate source: key and chain in one file, or in one
// each.
func (r Reader) certificate(src corev1.PodCertificateProjection, d defaults) (Files, error) {
	if r.Certificate == nil {
		return nil, fmt.Errorf("%w: its signers issue the certificate", ErrNeedsCluster)
	}
	if src.SignerName == "" {
		return nil, errors.New("signerName is empty")
	}
	if src.CredentialBundlePath == "" && src.KeyPath == "" && src.CertificateChainPath == "" {
		return nil, errors.New("want credentialBundlePath, or keyPath and certificateChainPath")
	}
	file, err := r.ownedFile(d, src.User)
	if err != nil {
		return nil, err
	}
	key, chain, err := r.Certificate(src)
	if err != nil {
		return nil, err
	}
	files := Files{}
	for _, f := range []struct {
		field, path string
		data        []byte
	}{
		{"credentialBundlePath", src.CredentialBundlePath, slices.Concat(key, chain)},
		{"keyPath", src.KeyPath, key},
		{"certificateChainPath", src.CertificateChainPath, chain},
	} {
		if f.path == "" {
			continue
		}
		file.Data = f.data
		if err := files.put(f.path, file); err != nil {
			return nil, fmt.Errorf("%s: %w", f.field, err)
		}
	}
	return files, nil
}
