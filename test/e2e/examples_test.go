package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
	decoder "github.com/csi-volmgr/csi-volmgr/pkg/source/manifest"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const examples = "../../examples/kinds"

// foreign are the examples of which the storage is not on every machine.
var foreign = []string{"fc", "iscsi", "nfs", "translated"}

// exampleFiles lists the examples by name.
func exampleFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(examples + "/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	return files
}

// TestTheExampleOfEachKindIsMounted: every one that needs nothing which is not on
// this machine, and nothing of them is left.
func TestTheExampleOfEachKindIsMounted(t *testing.T) {
	n := newPlace(t)
	n.flags = []string{"--local-driver", "--host-path-allow=/usr/share"}
	n.start()
	n.driverUp("local.csi-volmgr.dev")
	var pods, files []string
	for _, file := range exampleFiles(t) {
		if kind := strings.TrimSuffix(filepath.Base(file), ".yaml"); slices.Contains(foreign, kind) {
			continue
		} else if kind == "persistentvolumeclaim" {
			pods = append(pods, "example-claim")
		} else {
			pods = append(pods, "example-"+kind)
		}
		n.do("", "apply", "-f", file)
		files = append(files, file)
	}
	for _, pod := range pods {
		n.mounted(pod)
		if st, err := os.Stat(n.hostPath(pod, "data")); err != nil || !st.IsDir() {
			t.Errorf("%s: %v, %v", pod, st, err)
		}
	}
	for pod, file := range map[string]string{"example-configmap": "look/colour", "example-secret": "password", "example-downwardapi": "memory", "example-projected": "ca.pem"} {
		if b, err := os.ReadFile(filepath.Join(n.hostPath(pod, "data"), file)); err != nil || len(b) == 0 {
			t.Errorf("%s: %s: %q, %v", pod, file, b, err)
		}
	}
	n.deletePod(pods...)
	n.deleteClaim("example-claim", "example-ephemeral-data")
	for _, file := range files {
		n.do("", "delete", "-f", file)
	}
	n.nothingLeft()
}

// none is no other objects than those of one example.
type none map[resolve.Key]runtime.Object

func (o none) Get(k resolve.Key) runtime.Object { return o[k] }

func (none) VolumesOf(string, string) []*corev1.PersistentVolume { return nil }
func (none) ClaimsOf(string) []*corev1.PersistentVolumeClaim     { return nil }
func (none) Note(resolve.Key) string                             { return "" }
func (none) Unread(resolve.Key) string                           { return "" }

// TestTheOtherExamplesAreVolumes: what needs storage of others is at least what
// csi-volmgr takes for a volume.
func TestTheOtherExamplesAreVolumes(t *testing.T) {
	for _, kind := range foreign {
		file := filepath.Join(examples, kind+".yaml")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		objects, err := decoder.Decode(file, text)
		if err != nil {
			t.Fatal(err)
		}
		for _, obj := range objects {
			pod, ok := obj.(*corev1.Pod)
			if !ok {
				continue
			}
			pod.UID = "example"
			want := resolve.Pod(pod, none{}, resolve.Config{Builtins: []state.DriverName{resolve.FC, resolve.ISCSI, resolve.NFS}, NodeName: nodeName})
			if len(want.Volumes) != 1 || want.Volumes[0].Problem != "" || want.Volumes[0].ID == "" {
				t.Errorf("%s: %+v", kind, want.Volumes)
			}
		}
	}
}
