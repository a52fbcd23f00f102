package files_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/files"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/content"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// bothKinds runs a test for a configMap and for a secret.
func bothKinds(t *testing.T, test func(t *testing.T, kind state.DriverName)) {
	for _, kind := range []state.DriverName{files.ConfigMap, files.Secret} {
		t.Run(word(kind), func(t *testing.T) { test(t, kind) })
	}
}

func word(kind state.DriverName) string {
	if kind == files.Secret {
		return "secret"
	}
	return "configMap"
}

// Items: L01.
func TestAllKeysAreFiles(t *testing.T) {
	bothKinds(t, func(t *testing.T, kind state.DriverName) {
		newNode(t, kind, `{"name": "settings"}`).want(map[string]string{"a": "0644 1", "b": "0644 1", "binary": "0644 \x00\x01\x02"})
	})
}

// Items: L01.
func TestItemsSelectKeysPathsAndModes(t *testing.T) {
	bothKinds(t, func(t *testing.T, kind state.DriverName) {
		newNode(t, kind, `{"name": "settings", "defaultMode": 256, "items": [
		{"key": "a", "path": "x"}, {"key": "b", "path": "deep/er/y", "mode": 511}, {"key": "a", "path": "./twice"}]}`).
			want(map[string]string{"x": "0400 1", "deep/er/y": "0777 1", "twice": "0400 1"})
	})
}

// Items: L02.
func TestMissingKeyIsNamed(t *testing.T) {
	bothKinds(t, func(t *testing.T, kind state.DriverName) {
		n := newNode(t, kind, `{"name": "settings", "items": [{"key": "a", "path": "a"}, {"key": "nope", "path": "b"}]}`)
		if err := n.wantError("volume conf", word(kind)+" default/settings", "items[1].key", `"nope"`); !errors.Is(err, content.ErrNoKey) {
			t.Errorf("got %v, want ErrNoKey", err)
		}
		n = newNode(t, kind, `{"name": "settings", "optional": true, "items": [{"key": "a", "path": "a"}, {"key": "nope", "path": "b"}]}`)
		n.want(map[string]string{"a": "0644 1"})
	})
}

// Items: L03.
func TestMissingConfigMapIsNamed(t *testing.T) {
	bothKinds(t, func(t *testing.T, kind state.DriverName) {
		n := newNode(t, kind, `{"name": "later"}`)
		n.wantError("volume conf", word(kind)+" default/later", "not found")
		n.source.put("default/later", map[string]string{"k": "v"})
		n.want(map[string]string{"k": "0644 v", "binary": "0644 \x00\x01\x02"})
	})
}

// Items: L03.
func TestOptionalConfigMapMayComeAndGo(t *testing.T) {
	bothKinds(t, func(t *testing.T, kind state.DriverName) {
		n := newNode(t, kind, `{"name": "later", "optional": true}`)
		n.want(nil)
		n.source.put("default/later", map[string]string{"k": "v"})
		n.want(map[string]string{"k": "0644 v", "binary": "0644 \x00\x01\x02"})
		n.source.drop("default/later")
		n.want(nil)
	})
}

func TestWhatIsNotKnownIsNotMissing(t *testing.T) {
	bothKinds(t, func(t *testing.T, kind state.DriverName) {
		n := newNode(t, kind, `{"name": "settings", "optional": true}`)
		n.want(map[string]string{"a": "0644 1", "b": "0644 1", "binary": "0644 \x00\x01\x02"})
		unknown := errors.New("the API server does not answer")
		n.source.fail(unknown)
		if err := n.wantError(word(kind) + " default/settings"); !errors.Is(err, unknown) {
			t.Errorf("got %v, want the cause", err)
		}
		n.found(map[string]string{"a": "0644 1", "b": "0644 1", "binary": "0644 \x00\x01\x02"})
	})
}

// Attacks: C13.
func TestConfigMapOfAnotherNamespaceIsNotSeen(t *testing.T) {
	bothKinds(t, func(t *testing.T, kind state.DriverName) {
		n := newNode(t, kind, `{"name": "theirs"}`)
		n.source.put("other/theirs", map[string]string{"k": "v"})
		n.wantError(word(kind) + " default/theirs")
	})
}

// C10: a key that leads out of the volume.
// Items: L06.
// Attacks: C10.
func TestAttackKeyThatBecomesBadKeepsTheLastGood(t *testing.T) {
	bothKinds(t, func(t *testing.T, kind state.DriverName) {
		n := newNode(t, kind, `{"name": "settings"}`)
		good := map[string]string{"a": "0644 1", "b": "0644 1", "binary": "0644 \x00\x01\x02"}
		n.want(good)
		for _, key := range []string{"../../../../etc/passwd", "/abs", "..data", "x\x00y", "", strings.Repeat("x", 300)} {
			n.source.put("default/settings", map[string]string{"a": "2", key: "evil"})
			if err := n.wantError("volume conf", word(kind)+" default/settings"); !errors.Is(err, content.ErrPath) {
				t.Errorf("key %.16q: got %v, want ErrPath", key, err)
			}
			n.found(good)
		}
	})
}

func TestBadSourceIsNamedByField(t *testing.T) {
	bothKinds(t, func(t *testing.T, kind state.DriverName) {
		for config, want := range map[string]string{
			`{}`: word(kind) + ": ",
			``:   word(kind),
			`{"name": "settings", "defaultMode": -1}`:                                  "defaultMode",
			`{"name": "settings", "defaultMode": 512}`:                                 "defaultMode",
			`{"name": "settings", "items": [{"key": "a", "path": "a", "mode": 4095}]}`: "items[0].mode",
			`{"name": "settings", "items": [{"key": "a", "path": "../a"}]}`:            "items[0].path",
			`{"name": "settings", "items": [{"key": "a"}]}`:                            "items[0].path",
		} {
			newNode(t, kind, config).wantError("volume conf", want)
		}
	})
}

func TestFSGroupMayRead(t *testing.T) {
	bothKinds(t, func(t *testing.T, kind state.DriverName) {
		n := newNode(t, kind, `{"name": "settings", "defaultMode": 256}`)
		gid := int64(4711)
		m := n.volume.Mounts[pod]
		m.FSGroup = &gid
		n.volume.Mounts[pod] = m
		n.want(map[string]string{"a": "0440 1", "b": "0440 1", "binary": "0440 \x00\x01\x02"})
		var st unix.Stat_t
		if err := unix.Stat(m.Target+"/a", &st); err != nil || st.Gid != 4711 {
			t.Errorf("a: got group %d, %v, want 4711", st.Gid, err)
		}
	})
}

func TestDirectoryIsNotForAllToWrite(t *testing.T) {
	bothKinds(t, func(t *testing.T, kind state.DriverName) {
		defer unix.Umask(unix.Umask(0))
		n := newNode(t, kind, `{"name": "settings"}`)
		if err := n.publish(); err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(n.volume.Mounts[pod].Target); err != nil || st.Mode().Perm() != 0o755 {
			t.Errorf("got %v, %v, want mode 0755", st.Mode(), err)
		}
	})
}

// Another pod took the name while this pod's volume was there: the volume keeps what it
// has, and gets nothing of the other pod.
func TestVolumeOfAReplacedPodKeepsItsFields(t *testing.T) {
	n := newNode(t, files.DownwardAPI, `{"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}`)
	n.want(map[string]string{"labels": `0644 app="1"`})
	n.source.label("of the other pod")
	n.source.mu.Lock()
	n.source.pods["default/pod"].UID = "other" // label has made a copy
	n.source.mu.Unlock()
	n.wantError("pod default/pod has been replaced", "other")
	n.found(map[string]string{"labels": `0644 app="1"`})
}
