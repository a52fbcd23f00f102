package files_test

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/files"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The files belong to the users that the volume asks for, on disk and in memory, and
// the pod's fsGroup can still read them (KEP-5936).
//
// Items: Q02.
func TestFilesBelongToTheUserThatTheVolumeAsksFor(t *testing.T) {
	for kind, config := range map[state.DriverName]string{
		files.ConfigMap: `{"name": "one", "defaultUser": 1001, "items": [{"key": "a", "path": "d/a", "user": 1000}, {"key": "b", "path": "b"}]}`,
		files.Secret:    `{"secretName": "one", "defaultUser": 1001, "items": [{"key": "a", "path": "d/a", "user": 1000}, {"key": "b", "path": "b"}]}`,
		files.Projected: `{"defaultUser": 1001, "sources": [{"secret": {"name": "one", "items": [{"key": "a", "path": "d/a", "user": 1000}, {"key": "b", "path": "b"}]}}]}`,
		files.DownwardAPI: `{"defaultUser": 1001, "items": [{"path": "d/a", "user": 1000, "fieldRef": {"fieldPath": "metadata.name"}},
			{"path": "b", "fieldRef": {"fieldPath": "metadata.name"}}]}`,
	} {
		n := newNode(t, kind, config)
		n.source.put("default/one", map[string]string{"a": "1", "b": "2"})
		group := int64(4711)
		m := n.volume.Mounts[pod]
		m.FSGroup = &group
		n.volume.Mounts[pod] = m
		for range 2 { // the second publish finds the right files and leaves them
			if err := n.publish(); err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			for path, user := range map[string]uint32{"d/a": 1000, "b": 1001} {
				var st unix.Stat_t
				err := unix.Stat(filepath.Join(n.target(), path), &st)
				if err != nil || st.Uid != user || st.Gid != 4711 || st.Mode&0o777 != 0o644 {
					t.Errorf("%s: %s is of %d:%d, mode %o, %v, want %d:4711, 644", kind, path, st.Uid, st.Gid, st.Mode&0o777, err, user)
				}
			}
		}
	}
}
