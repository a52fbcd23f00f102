package wire

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The daemon ended after it recorded a volume's growth in the volume's record and before it did so in its claim's.
// The next start must repeat it.
func TestAClaimHearsOfASizeThatWasTheRecordsAlone(t *testing.T) {
	c := dirs(t)
	c.LocalDriver = true
	n, stop := start(t, c)
	apply(t, n, ephemeralPod)
	if err := n.Manager().WaitForAttachAndMount(within(t), "web-uid"); err != nil {
		t.Fatal(err)
	}
	stop()
	const grown = 2 << 20
	b, err := journal.OpenBolt(filepath.Join(c.StateDir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := b.Load(t.Context())
	if err != nil || len(loaded.Volumes) != 1 {
		t.Fatalf("%d volumes, %v", len(loaded.Volumes), err)
	}
	for id, v := range loaded.Volumes {
		v.SizeBytes = grown
		if err := b.Commit(t.Context(), map[state.VolumeID]*state.Volume{id: &v}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	n, _ = start(t, c)
	for {
		changed := n.changed.next()
		claims := n.Views().Claims()
		if len(claims) == 1 && claims[0].NodeBytes == grown {
			return
		}
		select {
		case <-changed:
		case <-within(t).Done():
			t.Fatalf("claims: %+v", claims)
		}
	}
}

// If a pod is applied again with a larger limit of a volume in memory, the volume grows while the pod runs. A smaller
// limit is refused, and the error names the field.
//
// Items: Q04.
func TestAVolumeInMemoryGrowsWhenItsPodIsAppliedAgain(t *testing.T) {
	n, _ := start(t, dirs(t))
	manifest := func(size string) string {
		return `{apiVersion: v1, kind: Pod, metadata: {name: web, uid: web-uid}, spec: {
  containers: [{name: c, image: i, volumeMounts: [{name: v, mountPath: /v}]}], volumes: [{name: v, emptyDir: {medium: Memory, sizeLimit: ` + size + `}}]}}`
	}
	apply(t, n, manifest("4Mi"))
	if err := n.Manager().WaitForAttachAndMount(within(t), "web-uid"); err != nil {
		t.Fatal(err)
	}
	path := n.Manager().GetMountedVolumesForPod("web-uid")["v"].HostPath
	bytes := func() uint64 {
		var st unix.Statfs_t
		if err := unix.Statfs(path, &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * uint64(st.Bsize)
	}
	if bytes() != 4<<20 {
		t.Fatalf("made with %d bytes", bytes())
	}
	apply(t, n, manifest("8Mi"))
	for changed := n.Manager().Changed(); bytes() != 8<<20; changed = n.Manager().Changed() {
		select {
		case <-changed:
		case <-within(t).Done():
			t.Fatalf("it has %d bytes", bytes())
		}
	}
	_, err := n.Apply(within(t), server.Manifest{Name: "-", Data: []byte(manifest("2Mi"))})
	if err == nil || !strings.Contains(err.Error(), "emptyDir.sizeLimit: found 2Mi, want at least the old limit, 8Mi") {
		t.Errorf("less: %v", err)
	}
}
