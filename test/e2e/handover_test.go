package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// podUID is the UID of the pod whose volumes a kubelet made.
const podUID = "6b1f6c1e-31a1-4f6a-9a53-2b7f0f7a9c01"

// called are the calls that adopt must not cause. NodeStageVolume is missing, since it is
// called for the directories that bare returns.
func called() []string {
	return []string{"NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume", "ControllerPublishVolume", "CreateVolume"}
}

// bare returns the staging directories of file system volumes on which nothing is mounted.
// Some drivers mount nothing there; the daemon stages such a volume once more after adopt.
func (a *adopted) bare() map[string]bool {
	a.T.Helper()
	dirs, err := filepath.Glob(filepath.Join(a.Root, "plugins/kubernetes.io/csi/*/*/globalmount"))
	must(a.T, err)
	ids, bare := a.mountIDs(), map[string]bool{}
	for _, dir := range dirs {
		if _, mounted := ids[dir]; !mounted {
			bare[dir] = true
		}
	}
	return bare
}

// adopted is a node with volumes that a kubelet made, and their manifests.
type adopted struct {
	*node
	kubelet *kubelet
	handles []string
	file    string // the pod's manifest
}

// persistent returns a PersistentVolume of the driver, with a claim that is bound to it.
func persistent(driver, pv, mode string, v *csi.Volume) string {
	attributes, err := json.Marshal(v.GetVolumeContext())
	if err != nil {
		panic(err) // a map of strings cannot fail
	}
	return fmt.Sprintf(`apiVersion: v1
kind: PersistentVolume
metadata: {name: %[2]s}
spec:
  accessModes: [ReadWriteOnce]
  volumeMode: %[4]s
  capacity: {storage: 32Mi}
  csi: {driver: %[1]s, volumeHandle: %[3]s, volumeAttributes: %[5]s}
  claimRef: {namespace: default, name: claim-%[2]s}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claim-%[2]s}
spec:
  accessModes: [ReadWriteOnce]
  volumeMode: %[4]s
  volumeName: %[2]s
  resources: {requests: {storage: 32Mi}}`, driver, pv, v.GetVolumeId(), mode, attributes)
}

// newAdopted makes a node that a kubelet has left, with a pod that has a volume of each
// kind that adopt can take over.
func newAdopted(t *testing.T) *adopted {
	t.Helper()
	n := newPlace(t)
	n.driver = newDriver(n, kinds()[0])
	k := newKubelet(n)
	a := &adopted{node: n, kubelet: k, file: filepath.Join(n.manifests(), "pod.yaml")}
	docs := []string{n.driver.class(), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {level: low}", "apiVersion: v1\nkind: Secret\nmetadata: {name: keys}\nstringData: {key: s3cret}"}
	for _, v := range []struct {
		pv, mode string
		can      *csi.VolumeCapability
	}{{"pv-now", fileSystem, k.mountable()}, {"pv-before", fileSystem, k.mountable()}, {"pv-disk", block, k.device()}} {
		made := k.makes(v.pv, v.can)
		a.handles = append(a.handles, made.GetVolumeId())
		docs = append(docs, persistent(n.driver.name, v.pv, v.mode, made))
		switch v.pv {
		case "pv-now": // as kubelets since 1.24 do it
			target := k.fileSystem(made, v.pv, podUID, "plugins/kubernetes.io/csi/"+n.driver.name+"/"+hash(made.GetVolumeId()))
			write(t, filepath.Join(target, "f"), "of "+v.pv)
			k.part(podUID, v.pv, target)
		case "pv-before":
			write(t, filepath.Join(k.fileSystem(made, v.pv, podUID, "plugins/kubernetes.io/csi/pv/"+v.pv), "f"), "of "+v.pv)
		default:
			k.block(made, v.pv, podUID)
		}
	}
	write(t, filepath.Join(k.inline("inline", podUID), "f"), "of inline")
	write(t, filepath.Join(k.dir("pods/"+podUID+"/volumes/kubernetes.io~empty-dir/scratch"), "f"), "of scratch")
	k.ready(podUID, "scratch")
	write(t, filepath.Join(k.memory(podUID, "kubernetes.io~empty-dir", "memory"), "f"), "of memory")
	k.ready(podUID, "memory")
	k.payload(k.memory(podUID, "kubernetes.io~secret", "keys"), "key", "s3cret")
	k.ready(podUID, "wrapped_keys")
	k.payload(k.dir("pods/"+podUID+"/volumes/kubernetes.io~configmap/settings"), "level", "low")
	k.ready(podUID, "wrapped_settings")
	disk := harness.FromClaim("disk", "claim-pv-disk")
	disk.Block = true
	web := harness.Pod("web", harness.FromClaim("now", "claim-pv-now"), harness.FromClaim("before", "claim-pv-before"), disk,
		volume{Name: "inline", Source: "csi: {driver: " + n.driver.name + ", volumeAttributes: {size: 8Mi}}"},
		volume{Name: "scratch", Source: "emptyDir: {}"}, volume{Name: "memory", Source: "emptyDir: {medium: Memory, sizeLimit: 1Mi}"},
		volume{Name: "keys", Source: "secret: {secretName: keys}"}, volume{Name: "settings", Source: "configMap: {name: settings}"})
	moveIn(t, filepath.Join(n.manifests(), "objects.yaml"), manifest(docs...))
	moveIn(t, a.file, strings.Replace(web, "metadata: {name: web}", "metadata: {name: web, uid: "+podUID+"}", 1))
	return a
}

// verb runs adopt or release with the daemon's flags.
func (a *adopted) verb(args ...string) harness.Result {
	a.T.Helper()
	return a.CLI("", append(args, "--root-dir", a.Root, "--state-dir", a.Path("state"), "--manifests", a.manifests(), "--node-name", harness.Name)...)
}

func (a *adopted) want(r harness.Result, code int, words ...string) {
	a.T.Helper()
	for _, w := range words {
		if !strings.Contains(r.Stdout+r.Stderr, w) {
			a.T.Errorf("it does not say %q", w)
		}
	}
	if r.Code != code || a.T.Failed() {
		a.T.Fatalf("exit code %d, want %d\n%s%s", r.Code, code, r.Stdout, r.Stderr)
	}
}

// intact fails the test if anything differs from what the kubelet left, or if
// NodeStageVolume was not called staged times.
func (a *adopted) intact(when string, ids map[string]uint64, staged int) {
	a.T.Helper()
	a.wantMounts(when, ids)
	if got := a.driver.proxy.count("NodeStageVolume"); got != staged {
		a.T.Errorf("NodeStageVolume %s: got %d, want %d", when, got, staged)
	}
	if got := a.driver.proxy.count(called()...); got != 0 {
		a.T.Errorf("calls %s: got %d, want 0", when, got)
	}
	for _, f := range []string{"csi/pv-now/mount", "csi/pv-before/mount", "csi/inline/mount", "empty-dir/scratch", "empty-dir/memory"} {
		name := strings.TrimSuffix(f, "/mount")
		wantFile(a.T, filepath.Join(a.Root, "pods", podUID, "volumes/kubernetes.io~"+f, "f"), "of "+filepath.Base(name))
	}
}

// nothingLeftAtAll removes the manifests, so that the daemon removes all volumes with only
// its records.
func (a *adopted) nothingLeftAtAll() {
	a.T.Helper()
	must(a.T, os.Remove(a.file))
	must(a.T, os.Remove(filepath.Join(a.manifests(), "objects.yaml")))
	a.NoVolumes()
	for _, id := range a.handles {
		_, err := csi.NewControllerClient(a.driver.proxy.conn).DeleteVolume(a.T.Context(), &csi.DeleteVolumeRequest{VolumeId: id})
		must(a.T, err)
	}
	a.nothingLeft()
}

// A limit of volumes per pod takes nothing away from what the kubelet mounted.
//
// Faults: A062.
func TestAKubeletsVolumesAreTakenOver(t *testing.T) {
	t.Parallel()
	a := newAdopted(t)
	ids, tree := a.mountIDs(), a.tree()
	a.want(a.verb("adopt", "--dry-run"), 0, "8 volumes would be taken over", "pv-before/globalmount: taken over as it is")
	if got := a.records(); len(got) != 0 {
		t.Fatalf("records after a dry run: %v", got)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	must(t, err)
	a.setDrain([]byte(`{"mode":"empty","bootID":"` + strings.TrimSpace(string(boot)) + `"}`))
	const limit = "--volumes-per-pod=2"
	a.flags = append(a.flags, limit)
	a.want(a.verb("adopt", "--yes", limit), 0, "8 volumes taken over")
	a.want(a.verb("adopt", "--yes", limit), 0, "0 volumes taken over")
	a.intact("after adopt", ids, 0)
	// An operator said that no container runs, and then the kubelet ran some.
	if was := a.setDrain(nil); !strings.Contains(was, `"mode":"hold"`) {
		t.Errorf("the drain after adopt: %s, want one that unmounts nothing", was)
	}
	if got := a.tree(); strings.Join(got, "\n") != strings.Join(tree, "\n") {
		t.Errorf("adopt changed what is on the disk: got %q, want %q", got, tree)
	}
	lines, err := audit.Open(a.Path("state"), nil).Lines()
	if err != nil || len(lines) != 2 || lines[0].Begins.Verb != "adopt" || !lines[1].Done {
		t.Errorf("audit log %+v, %v", lines, err)
	}

	again := len(a.bare())
	a.start()
	a.staged(again)
	a.asWanted("web")
	a.intact("with the daemon", ids, again)
	// The intents of another pod make this pod's records durable.
	a.Apply(harness.Pod("last", volume{Name: "scratch", Source: "emptyDir: {}"}))
	a.Mounted("last")
	a.DeletePods("last")
	a.daemon.Kill()
	a.start()
	a.DriverUp(a.driver.name)
	a.asWanted("web")
	a.intact("with the daemon, restarted", ids, again)
	a.nothingLeftAtAll()
}

// setDrain replaces the record of the node's drain, and returns what it was.
func (a *adopted) setDrain(record []byte) (was string) {
	a.T.Helper()
	journal, _ := a.Journal()
	defer journal.Close()
	const bucket, key = "operator", "drain"
	values, err := journal.LoadBucket(a.T.Context(), bucket)
	must(a.T, err)
	must(a.T, journal.CommitBucket(a.T.Context(), bucket, map[string][]byte{key: record}))
	return string(values.Sound[key])
}

// staged waits until the driver is up and NodeStageVolume was called n times since the test
// began.
func (a *adopted) staged(n int) {
	a.T.Helper()
	a.DriverUp(a.driver.name)
	ctx, cancel := context.WithTimeoutCause(a.T.Context(), harness.Patience, fmt.Errorf("%s passed", harness.Patience))
	defer cancel()
	must(a.T, a.driver.proxy.await(ctx, n, "NodeStageVolume"))
}

// madeHere mounts a pod whose volumes csi-volmgr makes.
func (a *adopted) madeHere() {
	a.T.Helper()
	disk := harness.FromClaim("disk", "claim-pv-raw")
	disk.Block = true
	fs, raw := a.kubelet.makes("pv-db", a.kubelet.mountable()), a.kubelet.makes("pv-raw", a.kubelet.device())
	a.handles = append(a.handles, fs.GetVolumeId(), raw.GetVolumeId())
	a.Apply(persistent(a.driver.name, "pv-db", fileSystem, fs), persistent(a.driver.name, "pv-raw", block, raw),
		harness.Pod("db", harness.FromClaim("data", "claim-pv-db"), disk, volume{Name: "here", Source: "hostPath: {path: " + a.Path("shared") + "}"},
			volume{Name: "cache", Source: "csi: {driver: " + a.driver.name + ", volumeAttributes: {size: 8Mi}}"},
			volume{Name: "keys", Source: "secret: {secretName: keys}"}, volume{Name: "tmp", Source: "emptyDir: {}"}))
	a.asWanted("db")
	write(a.T, filepath.Join(a.HostPath("db", "data"), "f"), "of db")
}

// Volumes that a kubelet made and volumes that csi-volmgr made are handed to a kubelet,
// taken over, and handed back again. The kubelet then removes them with its own files.
func TestVolumesAreHandedBackToAKubelet(t *testing.T) {
	t.Parallel()
	a := newAdopted(t)
	must(t, os.Mkdir(a.Path("shared"), 0o755))
	a.flags = []string{"--host-path-allow", a.Path("shared")}
	a.want(a.verb("adopt", "--yes"), 0, "8 volumes taken over")
	bare := a.bare()
	a.start()
	a.staged(len(bare))
	a.asWanted("web")
	a.madeHere()
	a.daemon.Stop()
	ids, calls, staged := a.mountIDs(), a.driver.proxy.count(called()...), a.driver.proxy.count("NodeStageVolume")
	before := a.records()
	bare = a.bare()

	a.want(a.verb("release", "--dry-run"), 0, "14 volumes would be handed back")
	if got := a.records(); len(got) != len(before) {
		t.Fatalf("%d records after a dry run, want %d", len(got), len(before))
	}
	a.want(a.verb("release", "--yes"), 0, "14 volumes handed back")
	a.want(a.verb("release", "--yes"), 0, "0 volumes handed back")
	if got := a.records(); len(got) != 0 {
		t.Errorf("records after release: %v", got)
	}
	a.wantMounts("after release", ids)
	a.want(a.verb("adopt", "--yes", "--host-path-allow", a.Path("shared")), 0, "13 volumes taken over") // a hostPath volume has nothing to take over
	for id, v := range a.records() {
		was := before[id]
		if bare[v.Spec.StagePath] { // as for bare volumes of a kubelet
			was.Stage.Phase = state.Entering
		}
		if v.Stage.Phase != was.Stage.Phase || v.Needs != was.Needs || !v.Spec.Equal(was.Spec) || len(v.Mounts) != len(was.Mounts) {
			t.Errorf("%s: record %+v, was %+v", id, v, was)
		}
	}
	a.start()
	a.staged(staged + len(bare))
	a.asWanted("web")
	a.asWanted("db")
	a.wantMounts("with the daemon", ids)
	if got := a.driver.proxy.count("NodeStageVolume") - staged; got != len(bare) {
		t.Errorf("NodeStageVolume: got %d, want %d", got, len(bare))
	}
	if got := a.driver.proxy.count(called()...) - calls; got != 0 {
		t.Errorf("calls: got %d, want 0", got)
	}
	wantFile(t, filepath.Join(a.HostPath("db", "data"), "f"), "of db")
	a.daemon.Stop()

	a.want(a.verb("release", "--yes"), 0, "14 volumes handed back")
	if unpublished, unstaged := a.kubelet.takeDown(); unpublished != 7 || unstaged != 5 {
		t.Errorf("a kubelet finds %d published and %d staged volumes, want 7 and 5", unpublished, unstaged)
	}
	for _, at := range a.Mounts() {
		if !strings.Contains(at, "/kubernetes.io~secret/") && !strings.Contains(at, "/kubernetes.io~empty-dir/") && !strings.Contains(at, "/volume-subpaths/") && !strings.Contains(at, "/dev/"+podUID) {
			t.Errorf("still mounted: %s", at)
		}
	}
}

// adopt and release refuse, say why, and change nothing.
func TestHandingOverIsRefused(t *testing.T) {
	t.Parallel()
	a := newAdopted(t)
	tree := a.tree()
	must(t, os.Rename(a.file, a.Path("aside.yaml")))
	a.want(a.verb("adopt", "--yes"), 1, "nothing was changed", "no source lists a pod with the uid "+podUID, "the files of emptyDir memory, scratch be deleted")
	k := serveKubelet(t, a.Root)
	a.want(a.verb("adopt", "--yes", "--reason", "its containers have ended"), 1, "a kubelet runs on this root directory")
	must(t, k.Close())
	must(t, os.RemoveAll(filepath.Join(a.Root, "pod-resources")))
	if got := a.records(); len(got) != 0 || strings.Join(a.tree(), " ") != strings.Join(tree, " ") {
		t.Errorf("records %v, tree %q, want %q", got, a.tree(), tree)
	}
	must(t, os.Rename(a.Path("aside.yaml"), a.file))
	a.want(a.verb("adopt", "--yes"), 0, "8 volumes taken over")
	mend := a.damage()
	a.want(a.verb("release", "--yes"), 1, "nothing was changed", "the journal: it may have lost its newest records", "csi-volmgr journal accept")
	mend()
	a.start()
	a.want(a.verb("release", "--yes"), 1, "another csi-volmgr uses it")
	a.nothingLeftAtAll()
}

// damage overwrites the journal. mend puts it back.
func (a *adopted) damage() (mend func()) {
	a.T.Helper()
	file := a.Path("state/state.db")
	sound, err := os.ReadFile(file)
	must(a.T, err)
	write(a.T, file, "damaged")
	return func() {
		damaged, err := filepath.Glob(file + ".damaged*")
		must(a.T, err)
		for _, f := range damaged {
			must(a.T, os.Remove(f))
		}
		write(a.T, file, string(sound))
	}
}

// serveKubelet listens on the socket of a kubelet.
func serveKubelet(t *testing.T, root string) net.Listener {
	t.Helper()
	dir := filepath.Join(root, "pod-resources")
	must(t, os.Mkdir(dir, 0o755))
	l, err := net.Listen("unix", filepath.Join(dir, "kubelet.sock"))
	must(t, err)
	return l
}
