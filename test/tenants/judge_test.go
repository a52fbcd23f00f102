package tenants

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/localdriver"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// words are in each file of the bank, and in none that the neighbour can read.
const words = "words of the bank"

// bank is a node on which namespace bank has volumes of each sort, and what the bank had when the neighbour came.
type bank struct {
	*harness.Node
	daemon *harness.Process
	plugin *harness.VolumePlugin // Docker's

	web      string // uid of pod bank/web
	path     string // of its volume data on the host
	volume   string // PersistentVolume of claim bank/data
	handle   string // of its snapshot monday at the driver
	claimUID string
	docker   string // path of Docker's volume, which stays mounted
	mounts   []string
	files    map[string]string // content by path
}

const class = `{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: class}, provisioner: ` + localdriver.DefaultName + `}`

// ofBank are the bank's objects and what an administrator made for it.
func (b *bank) ofBank() []string {
	return []string{class, `{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: ` + localdriver.DefaultName + `}, spec: {
  attachRequired: false, podInfoOnMount: true, volumeLifecycleModes: [Persistent, Ephemeral]}}`, fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: disk, labels: {tier: gold}}, spec: {
  capacity: {storage: 32Mi}, accessModes: [ReadWriteOnce], local: {path: %s}, nodeAffinity: {required: {nodeSelectorTerms: [
  {matchExpressions: [{key: kubernetes.io/hostname, operator: Exists}]}]}}}}`, b.Path("disks/disk")), `
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: bank, labels: {app: web}}, spec: {
  storageClassName: class, accessModes: [ReadWriteOnce], resources: {requests: {storage: 32Mi}}}}`, `
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: logs, namespace: bank}, spec: {storageClassName: "",
  accessModes: [ReadWriteOnce], resources: {requests: {storage: 32Mi}}}}`, `
{apiVersion: v1, kind: Secret, metadata: {name: keys, namespace: bank}, stringData: {f: ` + words + `}}`, `
{apiVersion: v1, kind: ConfigMap, metadata: {name: conf, namespace: bank}, data: {f: ` + words + `}}`, `
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: bank, labels: {app: web}}, spec: {
  containers: [{name: c, image: x, volumeMounts: [{name: data, mountPath: /data}, {name: logs, mountPath: /logs},
    {name: scratch, mountPath: /scratch}, {name: keys, mountPath: /keys}, {name: conf, mountPath: /conf}]}],
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}, {name: logs, persistentVolumeClaim: {claimName: logs}},
    {name: scratch, emptyDir: {}}, {name: keys, secret: {secretName: keys}}, {name: conf, configMap: {name: conf}}]}}`}
}

// newBank starts a node on which the bank has all of its volumes mounted.
func newBank(t *testing.T) *bank {
	t.Helper()
	b := &bank{Node: harness.NewNode(t, program, "run/api.sock"), files: map[string]string{}}
	t.Cleanup(func() { b.ShowIfFailed(b.daemon) })
	for _, dir := range []string{"disks/disk", "manifests"} {
		if err := os.MkdirAll(b.Path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b.start()
	b.plugin = harness.NewVolumePlugin(t, b.Path("run/plugin.sock"))
	b.DriverUp(localdriver.DefaultName)
	b.Apply(b.ofBank()...)
	b.ready("bank", "web")
	for _, m := range b.podMounts("bank", "web") {
		file := filepath.Join(m.HostPath, "f")
		switch m.Name {
		case "data":
			b.path, b.web = m.HostPath, strings.Split(strings.TrimPrefix(m.HostPath, filepath.Join(b.Root, "pods")+"/"), "/")[0]
			fallthrough
		case "logs", "scratch":
			b.put(file)
		}
		b.files[file] = words
	}
	b.plugin.Do("Create", "shop", map[string]string{"class": "class", "size": "32Mi"})
	b.docker = b.plugin.Do("Mount", "shop", nil).Mountpoint
	b.put(filepath.Join(b.docker, "f"))
	b.files[filepath.Join(b.docker, "f")] = words
	b.Do("", "snapshot", "create", "pvc/data", "-n", "bank", "--name=monday")
	b.handle = b.Do("", "get", "snapshots", "monday", "-n", "bank", "-o", "jsonpath={.snapshotHandle}")
	b.volume = b.Do("", "get", "pvc", "data", "-n", "bank", "-o", "jsonpath={.volume}")
	b.claimUID = strings.TrimPrefix(b.volume, "pvc-")
	b.mounts = b.ofTheBank()
	return b
}

func (b *bank) start() {
	b.T.Helper()
	flags := append([]string{"--local-driver", "--host-path-allow=" + b.Path("disks"), "--manifests", b.Path("manifests")},
		harness.VolumePluginFlags(b.Path("run/plugin.sock"))...)
	b.daemon = b.Answered(func() *harness.Process {
		return harness.Start(b.T, b.Path("run.log"), exec.Command(daemon, b.Daemon(flags...)...))
	})
}

func (b *bank) put(file string) {
	b.T.Helper()
	if err := os.WriteFile(file, []byte(words), 0o600); err != nil {
		b.T.Fatal(err)
	}
}

// ready waits until a pod has its volumes.
func (b *bank) ready(namespace, pod string) {
	b.T.Helper()
	r := b.CLI("", "wait", "pod", pod, "-n", namespace, "--for=mounted", "--timeout", harness.Patience.String())
	if r.Code != 0 {
		b.T.Fatalf("pod %s/%s: %s\n%s", namespace, pod, r.Stderr, b.CLI("", "explain", "pod", pod, "-n", namespace).Stdout)
	}
}

func (b *bank) podMounts(namespace, pod string) []server.Mount {
	b.T.Helper()
	mounts, err := b.API.Mounts(b.T.Context(), namespace, pod)
	if err != nil {
		b.T.Fatal(err)
	}
	return mounts
}

// ofTheBank returns the rows of the mount table with the bank's mounts: an id tells a mount from a later one at its place.
func (b *bank) ofTheBank() (rows []string) {
	for _, row := range b.MountTable() {
		if at := row[4]; strings.Contains(at, b.web) || strings.HasPrefix(b.docker, at) && strings.HasPrefix(at, b.Root) {
			rows = append(rows, strings.Join(slices.Concat(row[:1], row[2:6]), " "))
		}
	}
	slices.Sort(rows)
	return rows
}

// judge looks at what the bank has, and at what the neighbour can read.
func (b *bank) judge(when string) {
	b.T.Helper()
	if now := b.ofTheBank(); !slices.Equal(now, b.mounts) {
		b.T.Errorf("%s: the bank's mounts are\n%s\nwant\n%s", when, strings.Join(now, "\n"), strings.Join(b.mounts, "\n"))
	}
	for file, want := range b.files {
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			b.T.Errorf("%s: %s has %q, %v", when, file, got, err)
		}
	}
	if got := b.Do("", "get", "snapshots", "monday", "-n", "bank", "-o", "jsonpath={.snapshotHandle} {.readyToUse}"); got != b.handle+" true" {
		b.T.Errorf("%s: the bank's snapshot is %q, want %s true", when, got, b.handle)
	}
	if got := b.Do("", "get", "pvc", "data", "-n", "bank", "-o", "jsonpath={.volume}"); got != b.volume {
		b.T.Errorf("%s: the bank's claim has volume %s, want %s", when, got, b.volume)
	}
	b.neighbours(when)
}

// neighbours looks at what the pods of others can read.
func (b *bank) neighbours(when string) {
	b.T.Helper()
	pods, err := b.API.Pods(b.T.Context())
	if err != nil {
		b.T.Fatal(err)
	}
	for _, p := range pods {
		if p.Pod.Namespace != "bank" && p.Pod.Namespace != "nomad-bank" && p.Pod.Name != "docker.shop" {
			b.reads(when, p.Pod.Namespace, p.Pod.Name)
		}
	}
}

// reads fails the test if a pod can read the bank's words.
func (b *bank) reads(when, namespace, pod string) {
	b.T.Helper()
	mounts, err := b.API.Mounts(b.T.Context(), namespace, pod)
	if err != nil && !errors.Is(err, server.ErrNotFound) { // it may have gone
		b.T.Fatal(err)
	}
	for _, m := range mounts {
		b.searched(fmt.Sprintf("%s: volume %s of pod %s/%s", when, m.Name, namespace, pod), m.HostPath)
	}
}

func (b *bank) searched(what, dir string) {
	b.T.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(words)) {
			b.T.Errorf("%s: %s has the bank's words", what, path)
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		b.T.Errorf("%s: %v", what, err)
	}
}
