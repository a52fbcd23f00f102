package files_test

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
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/files"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
)

func TestMain(m *testing.M) { drivertest.Main(m) }

// source holds objects by "namespace/name".
type source struct {
	mu      sync.Mutex
	maps    map[string]*corev1.ConfigMap
	secrets map[string]*corev1.Secret
	pods    map[string]*corev1.Pod
	bundles []*certificatesv1.ClusterTrustBundle
	err     error
}

func (s *source) TrustBundles(context.Context) ([]*certificatesv1.ClusterTrustBundle, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bundles, s.err
}

func (s *source) ConfigMap(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.maps[namespace+"/"+name], s.err
}

func (s *source) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.secrets[namespace+"/"+name], s.err
}

func (s *source) Pod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own, ok := s.pods[namespace+"/"+name]
	if !ok && s.err == nil {
		// The contract's pods have their UIDs as names.
		own = s.pods["default/pod"].DeepCopy()
		own.UID = types.UID(name)
	}
	return own, s.err
}

func (s *source) Allocatable() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")}
}

// put sets the data of the ConfigMap and of the Secret with that name.
func (s *source) put(name string, data map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.maps[name] = &corev1.ConfigMap{Data: data, BinaryData: map[string][]byte{"binary": {0, 1, 2}}}
	secret := &corev1.Secret{Data: map[string][]byte{"binary": {0, 1, 2}}}
	for key, value := range data {
		secret.Data[key] = []byte(value)
	}
	s.secrets[name] = secret
}

func (s *source) drop(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.maps, name)
	delete(s.secrets, name)
}

// label sets a label of every pod.
func (s *source) label(value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, pod := range s.pods {
		pod = pod.DeepCopy()
		pod.Labels = map[string]string{"app": value}
		s.pods[name] = pod
	}
}

// mount gives the pod one container with mounts; pairs alternates volumes and paths.
func (s *source) mount(name string, pairs ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pod := s.pods[name].DeepCopy()
	var c corev1.Container
	for i := 0; i < len(pairs); i += 2 {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: pairs[i], MountPath: pairs[i+1]})
	}
	pod.Spec.Containers = []corev1.Container{c}
	s.pods[name] = pod
}

func (s *source) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func newSource() *source {
	s := &source{maps: map[string]*corev1.ConfigMap{}, secrets: map[string]*corev1.Secret{}, pods: map[string]*corev1.Pod{}}
	s.put("default/settings", map[string]string{"a": "1", "b": "1"})
	own := &corev1.Pod{}
	own.Namespace, own.Name, own.UID = "default", "pod", types.UID(pod)
	s.pods["default/pod"] = own
	s.label("1")
	return s
}

func newDriver(kind state.DriverName, l state.Layout, s *source) *files.Driver {
	return files.New(kind, files.Config{Layout: l, Kernel: mount.New(l.Root), Source: s})
}

// configs has a source of each kind.
var configs = map[state.DriverName]string{
	files.ConfigMap:   `{"name": "settings"}`,
	files.Secret:      `{"secretName": "settings"}`,
	files.DownwardAPI: `{"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}`,
	files.Projected:   `{"sources": [{"configMap": {"name": "settings"}}, {"secret": {"name": "settings"}}]}`,
}

// After a restart the driver removes a volume with nothing but its record.
//
// Items: M15, E16.
func TestContract(t *testing.T) {
	for _, kind := range files.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			drivertest.Run(t, func(_ *testing.T, l state.Layout) drivertest.Subject {
				s := newSource()
				return drivertest.Subject{
					Driver: once{newDriver(kind, l, s)}, Kind: kind, Config: json.RawMessage(configs[kind]),
					Change: func() { s.put("default/settings", map[string]string{"a": "2"}); s.label("2") },
					Fail: func(fail bool) {
						if s.fail(nil); fail {
							s.fail(errors.New("not known"))
						}
					},
				}
			})
		})
	}
}

const pod = state.PodUID("7f3c2a10-0000-4000-8000-000000000001")

// node is a node's root directory with one volume.
type node struct {
	t      *testing.T
	driver *files.Driver
	source *source
	volume state.Volume
}

func newNode(t *testing.T, kind state.DriverName, config string) *node {
	t.Helper()
	if kind == files.Secret {
		config = strings.Replace(config, `"name"`, `"secretName"`, 1)
	}
	l, s := state.Layout{Root: t.TempDir()}, newSource()
	// In memory, since a disk's syncs would only slow the tests down.
	if err := unix.Mount("node", l.Root, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(l.Root, unix.MNT_DETACH) })
	n := &node{t, newDriver(kind, l, s), s, state.Volume{
		Spec: &state.Spec{Driver: kind, Name: "conf", Builtin: true, Config: json.RawMessage(config)},
		Mounts: map[state.PodUID]state.Mount{pod: {MountSpec: state.MountSpec{
			Pod: state.Pod{UID: pod, Namespace: "default", Name: "pod"}, Target: l.BuiltinTarget(kind, pod, "conf"),
		}}},
	}}
	t.Cleanup(func() {
		if err := n.driver.Unpublish(context.WithoutCancel(t.Context()), n.volume, pod); err != nil {
			t.Error(err)
		}
	})
	return n
}

func (n *node) publish() error { return once{n.driver}.Publish(n.t.Context(), n.volume, pod) }

// once is a driver for tests that need only the error of Publish.
type once struct{ *files.Driver }

func (o once) Publish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	_, err := o.Driver.Publish(ctx, v, pod)
	return err
}

func (n *node) target() string { return n.volume.Mounts[pod].Target }

// want publishes, which must succeed, and fails the test unless the pod finds exactly
// these files, as "mode content" by path.
func (n *node) want(found map[string]string) {
	n.t.Helper()
	if err := n.publish(); err != nil {
		n.t.Fatal(err)
	}
	n.found(found)
}

func (n *node) found(wanted map[string]string) {
	n.t.Helper()
	target := n.volume.Mounts[pod].Target
	top := map[string]bool{}
	for path, want := range wanted {
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
