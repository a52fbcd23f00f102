package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	builtin "github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	decoder "github.com/csi-volmgr/csi-volmgr/internal/wants/manifest"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

const examples = "../../examples/kinds"

// foreign are the examples whose storage is not on every machine.
var foreign = []string{"cephfs", "fc", "glusterfs", "iscsi", "nfs", "translated"}

// exampleFiles returns the paths of the examples.
func exampleFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(examples + "/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	return files
}

// TestTheExampleOfEachKindIsMounted mounts every example whose storage is on this machine,
// and checks that nothing is left of them.
func TestTheExampleOfEachKindIsMounted(t *testing.T) {
	localOnly(t)
	n := newPlace(t)
	n.flags = []string{"--local-driver", "--host-path-allow=/usr/share"}
	n.start()
	n.DriverUp("local.csi-volmgr.dev")
	var pods, files []string
	for _, file := range exampleFiles(t) {
		if kind := strings.TrimSuffix(filepath.Base(file), ".yaml"); slices.Contains(foreign, kind) {
			continue
		} else if kind == "persistentvolumeclaim" {
			pods = append(pods, "example-claim")
		} else {
			pods = append(pods, "example-"+kind)
		}
		n.Do("", "apply", "-f", file)
		files = append(files, file)
	}
	for _, pod := range pods {
		n.Mounted(pod)
		if st, err := os.Stat(n.HostPath(pod, "data")); err != nil || !st.IsDir() {
			t.Errorf("%s: %v, %v", pod, st, err)
		}
	}
	for pod, file := range map[string]string{"example-configmap": "look/colour", "example-secret": "password", "example-downwardapi": "memory", "example-projected": "ca.pem"} {
		if b, err := os.ReadFile(filepath.Join(n.HostPath(pod, "data"), file)); err != nil || len(b) == 0 {
			t.Errorf("%s: %s: %q, %v", pod, file, b, err)
		}
	}
	n.DeletePods(pods...)
	n.DeleteClaims("example-claim")
	for _, file := range files {
		n.Do("", "delete", "-f", file)
	}
	n.nothingLeft()
}

// documented returns the flags of the daemon that README.md starts.
func documented(t *testing.T) []string {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(readme)) {
		if flags, ok := strings.CutPrefix(line, "sudo bin/csi-volmgr run "); ok {
			return strings.Fields(strings.ReplaceAll(flags, "$PWD", root))
		}
	}
	t.Fatal("README.md starts no daemon")
	return nil
}

// TestTheExamplesAreOneOfEachKind starts a daemon with the flags of README.md and applies
// all examples at once. They have a volume of each kind that needs no other storage.
func TestTheExamplesAreOneOfEachKind(t *testing.T) {
	n := newPlace(t)
	n.flags = documented(t)
	n.start()
	n.Do("", "apply", "-f", "../../examples/")
	n.Mounted("web")
	n.Mounted("more")
	for volume, pod := range map[string]string{
		"data": "web", "scratch": "web", "memory": "web", "settings": "web", "password": "web", "about": "web", "all": "web",
		"inline": "more", "own": "more", "path": "more", "local": "more", "model": "more",
	} {
		if st, err := os.Stat(n.HostPath(pod, volume)); err != nil || !st.IsDir() {
			t.Errorf("%s of %s: %v, %v", volume, pod, st, err)
		}
	}
	if st, err := os.Stat(n.HostPath("web", "disk")); err != nil || st.Mode().Type() != os.ModeDevice {
		t.Errorf("disk: %v, %v", st, err)
	}
	wantFile(t, filepath.Join(n.HostPath("more", "model"), "weights", "layer-1"), "0.1 0.2 0.3\n")
	n.serviceStarts("../../examples/systemd/web.service", n.HostPath("web", "data"))
	n.DeletePods("web", "more")
	n.DeleteClaims("data", "disk")
	n.Do("", "delete", "-f", "../../examples/")
	n.nothingLeft()
}

// serviceStarts runs the start command of a unit file, and checks its working directory.
func (n *node) serviceStarts(unit, in string) {
	n.T.Helper()
	text, err := os.ReadFile(unit)
	must(n.T, err)
	_, script, ok := strings.Cut(string(text), "\nExecStart=/bin/sh -c '")
	script, _, end := strings.Cut(script, "'\n")
	if !ok || !end || !strings.Contains(script, "sleep infinity") {
		n.T.Fatalf("%s: no command", unit)
	}
	script = strings.NewReplacer("$$", "$", `\\`, `\`, "sleep infinity", "pwd").Replace(script) // as systemd reads it
	bin := n.T.TempDir()
	must(n.T, os.WriteFile(filepath.Join(bin, "csi-volmgr"), []byte("#!/bin/sh\nexec "+program+" --socket="+n.Socket+" \"$@\"\n"), 0o755))
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != in {
		n.T.Errorf("%s: it runs in %q (%v), want %q: %s", unit, out, err, in, script)
	}
}

// only has the objects of one example.
type only map[resolve.Key]runtime.Object

func (o only) Get(k resolve.Key) runtime.Object { return o[k] }

func (only) VolumesOf(string, string) []*corev1.PersistentVolume { return nil }
func (only) Holders(string) (resolve.Owner, []*corev1.PersistentVolumeClaim) {
	return resolve.Owner{}, nil
}
func (only) Binding(resolve.Key) resolve.Binding { return resolve.Binding{} }
func (only) Unread(resolve.Key) string           { return "" }

// TestTheOtherExamplesAreVolumes checks that csi-volmgr resolves the examples that need
// other storage.
func TestTheOtherExamplesAreVolumes(t *testing.T) {
	localOnly(t)
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
		all := only{}
		for _, obj := range objects {
			key, err := resolve.KeyOf(obj)
			if err != nil {
				t.Fatal(err)
			}
			all[key] = obj
		}
		for _, obj := range objects {
			pod, ok := obj.(*corev1.Pod)
			if !ok {
				continue
			}
			pod.UID = "example"
			want := resolve.Pod(pod, all, resolve.Config{
				Builtins: []state.DriverName{builtin.CephFS, builtin.FC, builtin.GlusterFS, builtin.ISCSI, builtin.NFS},
				NodeName: harness.Name,
			})
			if len(want.Volumes) != 1 || want.Volumes[0].Problem != "" || want.Volumes[0].ID == "" {
				t.Errorf("%s: %+v", kind, want.Volumes)
			}
		}
	}
}
