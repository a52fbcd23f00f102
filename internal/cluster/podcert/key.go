package podcert

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// The types of the PEM blocks that are written.
const (
	pemKey         = "PRIVATE KEY"
	pemCertificate = "CERTIFICATE"
)

// newKey makes a key; kind is one of the API's names of key types.
func newKey(kind string) (crypto.Signer, error) {
	switch kind {
	case "RSA3072":
		return rsa.GenerateKey(rand.Reader, 3072)
	case "RSA4096":
		return rsa.GenerateKey(rand.Reader, 4096)
	case "ECDSAP256":
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ECDSAP384":
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "ECDSAP521":
		return ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	case "ED25519":
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}
	return nil, fmt.Errorf("keyType: found %.64q, want RSA3072, RSA4096, ECDSAP256, ECDSAP384, ECDSAP521 or ED25519", kind)
}

// encoded returns the key as the PEM that the pod reads.
func encoded(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode the key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: der}), nil
}

// checkChain returns the certificates of a chain without text around them. It returns an
// error if the first is not for key.
func checkChain(chain string, key crypto.Signer) ([]byte, error) {
	var out bytes.Buffer
	for block, rest := pem.Decode([]byte(chain)); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != pemCertificate {
			return nil, fmt.Errorf("the chain has a block of type %.64q", block.Type)
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("the chain: %w", err)
		}
		public, ok := certificate.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
		if out.Len() == 0 && (!ok || !public.Equal(key.Public())) {
			return nil, errors.New("the certificate is for another key than was asked for")
		}
		if err := pem.Encode(&out, &pem.Block{Type: pemCertificate, Bytes: block.Bytes}); err != nil {
			return nil, err
		}
	}
	if out.Len() == 0 {
		return nil, errors.New("the chain has no certificate")
	}
	return out.Bytes(), nil
}
