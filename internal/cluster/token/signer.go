package token

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
)

// maxKeyFile bounds the size of a key file, in bytes.
const maxKeyFile = 64 << 10

// Signer issues tokens on a node without a cluster: JSON Web Tokens with Kubernetes'
// claims, signed by a private key. Only services that trust the public key accept them.
// Unlike a cluster's tokens they stay valid after the pod is deleted.
type Signer struct {
	signer jose.Signer
	issuer string
}

// NewSigner returns a Signer with an RSA key of 2048 bits or more, an ECDSA key
// on P-256, P-384 or P-521, or an Ed25519 key. issuer becomes the tokens' "iss", and
// their audience if a request names none.
func NewSigner(key crypto.Signer, issuer string) (*Signer, error) {
	if issuer == "" {
		return nil, errors.New("token issuer: found none, want the URL for the claim iss of tokens")
	}
	algorithm, err := algorithmOf(key)
	if err != nil {
		return nil, fmt.Errorf("token signing key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("token signing key: %w", err)
	}
	sum := sha256.Sum256(public) // the API server derives its key ids in the same way
	named := jose.JSONWebKey{Key: key, KeyID: base64.RawURLEncoding.EncodeToString(sum[:])}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: named},
		new(jose.SignerOptions).WithType("JWT"))
	if err != nil {
		return nil, fmt.Errorf("token signing key: %w", err)
	}
	return &Signer{signer: signer, issuer: issuer}, nil
}

// algorithmOf returns the signature algorithm for a key (RFC 7518, 3.1).
func algorithmOf(key crypto.Signer) (jose.SignatureAlgorithm, error) {
	switch k := key.(type) {
	case *rsa.PrivateKey:
		if k.N.BitLen() < 2048 {
			return "", fmt.Errorf("found RSA of %d bits, want 2048 or more", k.N.BitLen())
		}
		return jose.RS256, nil
	case *ecdsa.PrivateKey:
		switch bits := k.Curve.Params().BitSize; bits {
		case 256:
			return jose.ES256, nil
		case 384:
			return jose.ES384, nil
		case 521:
			return jose.ES512, nil
		default:
			return "", fmt.Errorf("found an ECDSA curve of %d bits, want P-256, P-384 or P-521", bits)
		}
	case ed25519.PrivateKey:
		return jose.EdDSA, nil
	}
	return "", fmt.Errorf("found a %T, want an RSA, ECDSA or Ed25519 key", key)
}

// ReadKey reads a private key from a PEM file (PKCS #8, PKCS #1 or SEC 1). It refuses a
// file that others than its owner may access.
func ReadKey(path string) (crypto.Signer, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the token signing key: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read the token signing key: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("token signing key %s: found mode %04o, want 0600, since the key can sign a token of any "+
			"service account", path, info.Mode().Perm())
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return nil, fmt.Errorf("read the token signing key: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("token signing key %s: found no PEM block, want one with a private key", path)
	}
	key, err := parseKey(block)
	if err != nil {
		return nil, fmt.Errorf("token signing key %s: %w", path, err)
	}
	return key, nil
}

func parseKey(block *pem.Block) (crypto.Signer, error) {
	switch block.Type {
	case "RSA PRIVATE KEY":
		return x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		return x509.ParseECPrivateKey(block.Bytes)
	case "PRIVATE KEY":
		key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			return nil, err
		}
		if s, ok := key.(crypto.Signer); ok {
			return s, nil
		}
		return nil, fmt.Errorf("found a %T, want a key that signs", key)
	}
	return nil, fmt.Errorf("found a PEM block %q, want PRIVATE KEY, RSA PRIVATE KEY or EC PRIVATE KEY", block.Type)
}

// claims are the claims of Kubernetes' bound service account tokens.
type claims struct {
	Audience  []string   `json:"aud"`
	Expires   int64      `json:"exp"`
	Issued    int64      `json:"iat"`
	Issuer    string     `json:"iss"`
	ID        string     `json:"jti"`
	Private   kubernetes `json:"kubernetes.io"`
	NotBefore int64      `json:"nbf"`
	Subject   string     `json:"sub"`
}

type kubernetes struct {
	Namespace      string `json:"namespace"`
	Pod            object `json:"pod"`
	ServiceAccount object `json:"serviceaccount"`
}

type object struct {
	Name string `json:"name"`
	UID  string `json:"uid,omitempty"`
}

// Token implements [csiclient.TokenSource].
func (s *Signer) Token(_ context.Context, r csiclient.TokenRequest) (csiclient.Token, error) {
	if err := Check(r); err != nil {
		return csiclient.Token{}, err
	}
	lifetime, audience := r.Lifetime, r.Audience
	if lifetime == 0 {
		lifetime = DefaultLifetime
	}
	if audience == "" {
		audience = s.issuer
	}
	now := time.Now().Truncate(time.Second)
	t := csiclient.Token{Issued: now, Expires: now.Add(lifetime)}
	value, err := s.sign(claims{
		Audience: []string{audience}, Expires: t.Expires.Unix(), Issued: now.Unix(), NotBefore: now.Unix(),
		Issuer: s.issuer, ID: rand.Text(), Subject: "system:serviceaccount:" + r.Pod.Namespace + ":" + r.Pod.ServiceAccount,
		Private: kubernetes{
			Namespace: r.Pod.Namespace, Pod: object{Name: r.Pod.Name, UID: string(r.Pod.UID)},
			ServiceAccount: object{Name: r.Pod.ServiceAccount},
		},
	})
	if err != nil {
		return csiclient.Token{}, fmt.Errorf("sign a token: %w", err)
	}
	t.Value = value
	return t, nil
}

func (s *Signer) sign(c claims) (string, error) {
	body, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	signed, err := s.signer.Sign(body)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}
