package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"

	"github.com/csi-volmgr/csi-volmgr/hack/bench/internal/benchdef"
	"github.com/csi-volmgr/csi-volmgr/hack/bench/internal/harness"
	"github.com/csi-volmgr/csi-volmgr/internal/cluster/token"
	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
)

// cluster is the rest of a cluster: it binds pods to the node, and deletes them when they
// have ended. It does so through fakeapi's control socket, which costs this process less
// than an API client would.
type cluster struct{ ctl *benchdef.Ctl }

func (c *cluster) put(p int) error    { return c.ctl.Do(fmt.Sprintf("/put?pod=%d", p)) }
func (c *cluster) delete(p int) error { return c.ctl.Do(fmt.Sprintf("/delete?pod=%d", p)) }
func (c *cluster) change(p, gen int) error {
	return c.ctl.Do(fmt.Sprintf("/change?pod=%d&gen=%d", p, gen))
}

// signer returns an issuer of tokens for runs without an API server.
func signer() (csiclient.TokenSource, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	return token.NewSigner(key, "https://bench.example.com")
}

// tokenKey writes a key for the daemon, and returns its path.
func tokenKey(dir string) (string, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "token.pem")
	return file, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
}

// kubeconfig writes the daemon's kubeconfig for fakeapi, and returns its path.
func kubeconfig(f *harness.Flags) (string, error) {
	file := filepath.Join(f.Root, "kubeconfig")
	return file, os.WriteFile(file, []byte(fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: bench, cluster: {server: "%s", insecure-skip-tls-verify: true}}]
users: [{name: bench, user: {}}]
contexts: [{name: bench, context: {cluster: bench, user: bench}}]
current-context: bench
`, f.API)), 0o600)
}
