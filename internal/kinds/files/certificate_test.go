package files_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/files"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/content"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// TestCertificatesAreWrittenAndRenewedInTime: key and chain are in one file, or each in
// its own. If there is no new certificate, the old files stay.
//
// Items: L12.
func TestCertificatesAreWrittenAndRenewedInTime(t *testing.T) {
	n := newNode(t, files.Projected, `{"sources": [{"podCertificate": {"signerName": "x.y/z", "keyType": "ED25519", "credentialBundlePath": "all", "keyPath": "key", "certificateChainPath": "chain"}}]}`)
	if _, err := n.driver.Publish(t.Context(), n.volume, pod); !errors.Is(err, content.ErrNeedsCluster) {
		t.Errorf("without a cluster: got %v", err)
	}
	root := n.target()
	for range 5 { // pods/UID/volumes/KIND/NAME
		root = filepath.Dir(root)
	}
	l := state.Layout{Root: root}
	at, value := time.Now().Add(time.Hour), "1"
	var failure error
	d := files.New(files.Projected, files.Config{
		Layout: l, Kernel: mount.New(l.Root), Source: n.source,
		Certificate: func(_ context.Context, of state.Pod, src corev1.PodCertificateProjection) (files.Credential, error) {
			if of.UID != pod || src.SignerName != "x.y/z" {
				return files.Credential{}, errors.New("asked for something else")
			}
			return files.Credential{Key: []byte("key" + value), Chain: []byte("chain" + value), RenewAt: at}, failure
		},
	})
	publish := func(want string) error {
		t.Helper()
		until, err := d.Publish(t.Context(), n.volume, pod)
		if err == nil && !until.Equal(at) {
			t.Errorf("to be renewed at %v, want %v", until, at)
		}
		for name, content := range map[string]string{"all": "key" + want + "chain" + want, "key": "key" + want, "chain": "chain" + want} {
			if data, err := os.ReadFile(filepath.Join(n.target(), name)); err != nil || string(data) != content {
				t.Errorf("%s: got %q, %v, want %q", name, data, err, content)
			}
		}
		return err
	}
	if err := publish("1"); err != nil {
		t.Error(err)
	}
	value = "2"
	if err := publish("2"); err != nil {
		t.Error(err)
	}
	value, failure = "3", errors.New("denied")
	if err := publish("2"); !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
}
