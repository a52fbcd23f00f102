package wire

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// After a restart a claim that names another claim's volume does not have it for a moment: whose each volume is, is
// known before any source lists an object, however long the list of owners is.
func TestOwnersAreKnownBeforeClaims(t *testing.T) {
	const n = 5000
	c := dirs(t)
	if err := os.MkdirAll(c.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	b, err := journal.OpenBolt(filepath.Join(c.StateDir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	pv := &corev1.PersistentVolume{}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "d.example", VolumeHandle: "h"}
	owners := map[string][]byte{}
	for i := range n {
		name := fmt.Sprint("v", i)
		owners[name] = fmt.Appendf(nil, `{"version":1,"volume":%q,"claim":"bank/data","storage":%q}`, name, resolve.Storage(pv))
	}
	err = errors.Join(b.CommitBucket(t.Context(), "owners", owners), b.CommitBucket(t.Context(), "objects", map[string][]byte{
		"PersistentVolume//v7": []byte(`{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"v7"},"spec":{"accessModes":["ReadWriteOnce"],` +
			`"csi":{"driver":"d.example","volumeHandle":"h"}}}`),
		"PersistentVolumeClaim/evil/thief": []byte(`{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"thief","namespace":"evil"},` +
			`"spec":{"accessModes":["ReadWriteOnce"],"volumeName":"v7"}}`),
	}), b.Close())
	if err != nil {
		t.Fatal(err)
	}
	node, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan *corev1.PersistentVolume, n)
	node.catalog.Subscribe(func(key source.Key) {
		if claim, is := node.catalog.Get(key).(*corev1.PersistentVolumeClaim); is {
			seen <- node.catalog.VolumeOf(claim)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- node.Run(ctx) }()
	select {
	case pv := <-seen:
		if pv != nil {
			t.Errorf("evil/thief has volume %s", pv.Name)
		}
	case <-within(t).Done():
		t.Error("the claim is not listed")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
