package configmap_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/configmap"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/drivertest"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/payload"
	"github.com/csi-volmgr/csi-volmgr/pkg/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func TestMain(m *testing.M) { drivertest.Main(m) }

// source holds ConfigMaps by "namespace/name".
type source struct {
	mu   sync.Mutex
	maps map[string]*corev1.ConfigMap
	err  error
}

func (s *source) ConfigMap(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	if cm, ok := s.maps[namespace+"/"+name]; ok {
		return cm, nil
	}
	err := apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
	return nil, fmt.Errorf("catalog: %w", err)
}

func (s *source) put(name string, data map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.maps[name] = &corev1.ConfigMap{Data: data, BinaryData: map[string][]byte{"binary": {0, 1, 2}}}
}

func (s *source) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func newSource() *source {
	s := &source{maps: map[string]*corev1.ConfigMap{}}
	s.put("default/settings", map[string]string{"a": "1", "b": "1"})
	return s
}

func newDriver(l state.Layout, s *source) *configmap.Driver {
	return configmap.New(configmap.Config{Layout: l, Kernel: mount.New(l.Root), Source: s})
}

func TestContract(t *testing.T) {
	drivertest.Run(t, func(_ *testing.T, l state.Layout) drivertest.Subject {
		s := newSource()
		return drivertest.Subject{
			Driver: newDriver(l, s), Kind: configmap.Kind, Config: json.RawMessage(`{"name": "settings"}`),
			Change: func() { s.put("default/settings", map[string]string{"a": "2"}) },
			Fail: func(fail bool) {
				if s.fail(nil); fail {
					s.fail(errors.New("not known"))
				}
			},
		}
	})
}

const pod = state.PodUID("7f3c2a10-0000-4000-8000-000000000001")

// node is a node's root with one volume on it.
type node struct {
	t      *testing.T
	driver *configmap.Driver
	source *source
	volume state.Volume
}

func newNode(t *testing.T, config string) *node {
	t.Helper()
	l, s := state.Layout{Root: t.TempDir()}, newSource()
	return &node{t, newDriver(l, s), s, state.Volume{
		Spec: state.Spec{Driver: configmap.Kind, Name: "conf", Builtin: true, Config: json.RawMessage(config)},
		Mounts: map[state.PodUID]state.Mount{pod: {MountSpec: state.MountSpec{
			Pod: state.Pod{UID: pod, Namespace: "default"}, Target: l.BuiltinTarget(configmap.Kind, pod, "conf"),
		}}},
	}}
}

func (n *node) publish() error { return n.driver.Publish(n.t.Context(), n.volume, pod) }

// want fails the test unless a publish succeeds after which the pod finds these
// files, as "mode content" by path.
func (n *node) want(files map[string]string) {
	n.t.Helper()
	if err := n.publish(); err != nil {
		n.t.Fatal(err)
	}
	n.found(files)
}

func (n *node) found(files map[string]string) {
	n.t.Helper()
	target := n.volume.Mounts[pod].Target
	top := map[string]bool{}
	for path, want := range files {
		top[strings.Split(path, "/")[0]] = true
		st, err := os.Stat(filepath.Join(target, path))
		if err != nil {
			n.t.Error(err)
			continue
		}
		data, err := os.ReadFile(filepath.Join(target, path))
		if got := fmt.Sprintf("%04o %s", st.Mode().Perm(), data); err != nil || got != want {
			n.t.Errorf("%s: got %q, %v, want %q", path, got, err, want)
		}
	}
	entries, err := os.ReadDir(target)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, e := range entries {
		if !top[e.Name()] && !strings.HasPrefix(e.Name(), "..") {
			n.t.Errorf("%s: is there, should not be", e.Name())
		}
	}
}

func (n *node) wantError(want ...string) error {
	n.t.Helper()
	err := n.publish()
	if err == nil {
		n.t.Fatal("got no error")
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			n.t.Errorf("got %v, want %q in it", err, w)
		}
	}
	return err
}

func TestAllKeysAreFiles(t *testing.T) {
	newNode(t, `{"name": "settings"}`).want(map[string]string{"a": "0644 1", "b": "0644 1", "binary": "0644 \x00\x01\x02"})
}

func TestItemsSelectKeysPathsAndModes(t *testing.T) {
	newNode(t, `{"name": "settings", "defaultMode": 256, "items": [
		{"key": "a", "path": "x"}, {"key": "b", "path": "deep/er/y", "mode": 511}, {"key": "a", "path": "./twice"}]}`).
		want(map[string]string{"x": "0400 1", "deep/er/y": "0777 1", "twice": "0400 1"})
}

func TestMissingKeyIsNamed(t *testing.T) {
	n := newNode(t, `{"name": "settings", "items": [{"key": "a", "path": "a"}, {"key": "nope", "path": "b"}]}`)
	if err := n.wantError("volume conf", "configmap default/settings", "items[1].key", `"nope"`); !errors.Is(err, configmap.ErrNoKey) {
		t.Errorf("got %v, want ErrNoKey", err)
	}
	n = newNode(t, `{"name": "settings", "optional": true, "items": [{"key": "a", "path": "a"}, {"key": "nope", "path": "b"}]}`)
	n.want(map[string]string{"a": "0644 1"})
}

func TestMissingConfigMapIsNamed(t *testing.T) {
	n := newNode(t, `{"name": "later"}`)
	n.wantError("volume conf", "configmap default/later", "not found")
	n.source.put("default/later", map[string]string{"k": "v"})
	n.want(map[string]string{"k": "0644 v", "binary": "0644 \x00\x01\x02"})
}

func TestOptionalConfigMapMayComeAndGo(t *testing.T) {
	n := newNode(t, `{"name": "later", "optional": true}`)
	n.want(nil)
	n.source.put("default/later", map[string]string{"k": "v"})
	n.want(map[string]string{"k": "0644 v", "binary": "0644 \x00\x01\x02"})
	n.source.mu.Lock()
	delete(n.source.maps, "default/later")
	n.source.mu.Unlock()
	n.want(nil)
}

func TestWhatIsNotKnownIsNotMissing(t *testing.T) {
	n := newNode(t, `{"name": "settings", "optional": true}`)
	n.want(map[string]string{"a": "0644 1", "b": "0644 1", "binary": "0644 \x00\x01\x02"})
	unknown := errors.New("the API server does not answer")
	n.source.fail(unknown)
	if err := n.wantError("configmap default/settings"); !errors.Is(err, unknown) {
		t.Errorf("got %v, want the cause", err)
	}
	n.found(map[string]string{"a": "0644 1", "b": "0644 1", "binary": "0644 \x00\x01\x02"})
}

func TestConfigMapOfAnotherNamespaceIsNotSeen(t *testing.T) {
	n := newNode(t, `{"name": "theirs"}`)
	n.source.put("other/theirs", map[string]string{"k": "v"})
	n.wantError("configmap default/theirs")
}

func TestKeyThatBecomesBadKeepsTheLastGood(t *testing.T) {
	n := newNode(t, `{"name": "settings"}`)
	good := map[string]string{"a": "0644 1", "b": "0644 1", "binary": "0644 \x00\x01\x02"}
	n.want(good)
	for _, key := range []string{"../../../../etc/passwd", "/abs", "..data", "x\x00y", "", strings.Repeat("x", 300)} {
		n.source.put("default/settings", map[string]string{"a": "2", key: "evil"})
		if err := n.wantError("volume conf", "configmap default/settings"); !errors.Is(err, payload.ErrPath) {
			t.Errorf("key %.16q: got %v, want ErrPath", key, err)
		}
		n.found(good)
	}
}

func TestBadSourceIsNamedByField(t *testing.T) {
	for config, want := range map[string]string{
		`{}`: "configMap.name",
		``:   "configMap",
		`{"name": "settings", "defaultMode": -1}`:                                  "defaultMode",
		`{"name": "settings", "defaultMode": 512}`:                                 "defaultMode",
		`{"name": "settings", "items": [{"key": "a", "path": "a", "mode": 4095}]}`: "items[0].mode",
		`{"name": "settings", "items": [{"key": "a", "path": "../a"}]}`:            "items[0].path",
		`{"name": "settings", "items": [{"key": "a"}]}`:                            "items[0].path",
	} {
		newNode(t, config).wantError("volume conf", want)
	}
}

func TestFSGroupMayRead(t *testing.T) {
	n := newNode(t, `{"name": "settings", "defaultMode": 256}`)
	gid := int64(4711)
	m := n.volume.Mounts[pod]
	m.FSGroup = &gid
	n.volume.Mounts[pod] = m
	n.want(map[string]string{"a": "0440 1", "b": "0440 1", "binary": "0440 \x00\x01\x02"})
	var st unix.Stat_t
	if err := unix.Stat(m.Target+"/a", &st); err != nil || st.Gid != 4711 {
		t.Errorf("a: got group %d, %v, want 4711", st.Gid, err)
	}
}

func TestDirectoryIsNotForAllToWrite(t *testing.T) {
	defer unix.Umask(unix.Umask(0))
	n := newNode(t, `{"name": "settings"}`)
	if err := n.publish(); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(n.volume.Mounts[pod].Target); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("got %v, %v, want mode 0755", st.Mode(), err)
	}
}
