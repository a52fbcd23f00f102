package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
)

// thief returns a pod in the place of Docker's volume db, whose container has an empty directory, and a claim in its place.
func thief() (pod, claim string) {
	return `{apiVersion: v1, kind: Pod, metadata: {name: docker.db, namespace: default}, spec: {containers: [{name: users, image: x,
  volumeMounts: [{name: v, mountPath: /v}]}], volumes: [{name: v, emptyDir: {}}]}}`,
		`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: db, namespace: default}, spec: {storageClassName: class,
  accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}}`
}

// user returns a pod of the name that uses the claim db.
func user(name string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: default}, spec: {containers: [{name: c, image: x,
  volumeMounts: [{name: v, mountPath: /v}]}], volumes: [{name: v, persistentVolumeClaim: {claimName: db}}]}}`, name)
}

func (n *node) problems() string {
	n.T.Helper()
	return n.Do("", "get", "problems")
}

// The next mount of Docker's volume has its data, whatever is applied or written into a manifest under the names of its pod
// and its claim; and what the manifest's own pod gets is not Docker's data.
func TestTheDataOfDockersVolumeIsItsOwn(t *testing.T) {
	t.Parallel()
	n := withPlugin(t, kinds()[0])
	n.pluginCreate("db")
	marker := func(when string) {
		t.Helper()
		path, refused := n.pluginMount("db", "c1")
		if refused != "" {
			t.Fatalf("%s: mount: %s", when, refused)
		}
		if when == "at first" {
			write(t, filepath.Join(path, "f"), "of Docker")
		}
		wantFile(t, filepath.Join(path, "f"), "of Docker")
		n.pluginUnmount("db", "c1")
		n.NoVolumes()
	}
	marker("at first")
	pod, claim := thief()
	pv := `{apiVersion: v1, kind: PersistentVolume, metadata: {name: other}, spec: {capacity: {storage: 64Mi}, accessModes: [ReadWriteOnce],
  csi: {driver: d, volumeHandle: h}}}`
	for _, object := range []string{pod, claim} {
		said := n.CLI(pv+"\n---\n"+object, "apply", "-f", "-")
		if said.Code == 0 || !strings.Contains(said.Stderr, "belongs to the volume db of Docker or podman") {
			t.Errorf("applied: %+v", said)
		}
	}
	if said := n.Do("", "get", "pv"); strings.Contains(said, "other") {
		t.Errorf("a part of a refused manifest is in effect:\n%s", said)
	}
	marker("after apply")
	n.Apply(user("sharing")) // a pod that names Docker's claim has Docker's data: its author says so
	n.Do("", "wait", "pod", "sharing", "--for=mounted", "--timeout=1m")
	n.Do("", "delete", "pod", "sharing")

	for file, object := range map[string]string{"pod.yaml": pod, "claim.yaml": claim, "user.yaml": user("web")} {
		write(t, filepath.Join(n.manifests(), file), object)
	}
	n.Eventually("problems to name both objects", func() bool {
		said := n.problems()
		return strings.Contains(said, "default/docker.db") && strings.Contains(said, "default/db") &&
			strings.Count(said, "it belongs to the volume db of Docker or podman, and this object has no effect") == 2
	})
	n.Eventually("explain to say why web has no volume", func() bool {
		return strings.Contains(n.Do("", "explain", "pod", "web"), "it belongs to the volume db of Docker or podman")
	})
	marker("beside manifests")
	n.daemon.Kill()
	n.start()
	n.DriverUp(n.driver.kind.name)
	marker("after a restart")
	if said := n.Do("", "get", "mounts", "-A"); strings.Contains(said, "web") {
		t.Errorf("the manifest's pod has a mount:\n%s", said)
	}
	for _, file := range []string{"pod.yaml", "claim.yaml", "user.yaml"} {
		if err := os.Remove(filepath.Join(n.manifests(), file)); err != nil {
			t.Fatal(err)
		}
	}
	n.Eventually("the problems to go", func() bool { return !strings.Contains(n.problems(), "belongs to") })
	marker("at last")
}

// The reverse order: a claim of a manifest keeps its data, and Docker's volume of its name is refused, but one that names the
// claim shares the data.
func TestDockerTakesNoClaimOfAManifest(t *testing.T) {
	t.Parallel()
	n := withPlugin(t, kinds()[0])
	pod, claim := thief()
	write(t, filepath.Join(n.manifests(), "claim.yaml"), claim)
	n.Apply(user("web"))
	n.Do("", "wait", "pod", "web", "--for=mounted", "--timeout=1m")
	create := func(name string, opts map[string]string) string {
		return n.plugin("VolumeDriver.Create", map[string]any{"Name": name, "Opts": opts})
	}
	if said := create("db", map[string]string{"class": "class"}); !strings.Contains(said, "claim default/db exists already (source file)") {
		t.Errorf("create says %s", said)
	}
	if said := create("mine", map[string]string{"claim": "db"}); said != "{}" {
		t.Errorf("with option claim: %s", said)
	}
	path, refused := n.pluginMount("mine", "c1")
	if refused != "" {
		t.Fatal(refused)
	}
	write(t, filepath.Join(path, "f"), "of the claim")
	// A new object under the name of the claim that a volume only uses is not refused: the claim is the manifest's.
	if said := n.CLI(strings.Replace(pod, "docker.db", "docker.mine", 1), "apply", "-f", "-"); said.Code == 0 || !strings.Contains(said.Stderr, "volume mine") {
		t.Errorf("applied in place of its pod: %+v", said)
	}
	n.Apply(claim)
	wantFile(t, filepath.Join(path, "f"), "of the claim")
}

// An earlier version did not say that a volume owns its names. A claim that was applied under its name goes on as before,
// for the node's pods and for Docker, and is named in the problems; a volume that shares no name owns its own from now on.
func TestUpgradeOfDockersVolumes(t *testing.T) {
	t.Parallel()
	n := withPlugin(t, kinds()[0])
	n.pluginCreate("db")
	n.pluginCreate("alone")
	path, _ := n.pluginMount("db", "c1")
	write(t, filepath.Join(path, "f"), "of Docker")
	n.pluginUnmount("db", "c1")
	n.NoVolumes()
	n.daemon.Kill()
	j, err := journal.OpenBolt(n.Path("state/state.db"))
	if err != nil {
		t.Fatal(err)
	}
	values, err := j.LoadBucket(t.Context(), "named")
	if err != nil {
		t.Fatal(err)
	}
	changes := map[string][]byte{}
	for name, value := range values.Sound {
		if changes[name] = bytes.Replace(value, []byte(`,"owns":true`), nil, 1); bytes.Equal(changes[name], value) {
			t.Fatalf("row %s: %s", name, value)
		}
	}
	if err := j.CommitBucket(context.Background(), "named", changes); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	_, claim := thief()
	write(t, filepath.Join(n.manifests(), "claim.yaml"), claim) // as it was beside the volume before
	n.start()
	n.DriverUp(n.driver.kind.name)
	n.Eventually("problems to name the claim", func() bool {
		said := n.problems()
		return strings.Contains(said, "source file has claim default/db, too") && strings.Contains(said, "the volume db of Docker or podman")
	})
	path, refused := n.pluginMount("db", "c2")
	if refused != "" {
		t.Fatal(refused)
	}
	wantFile(t, filepath.Join(path, "f"), "of Docker")
	n.Apply(user("web")) // it has the claim's volume, as before
	n.Do("", "wait", "pod", "web", "--for=mounted", "--timeout=1m")
	n.Do("", "delete", "pod", "web")
	if said := n.CLI(strings.Replace(claim, "name: db", "name: alone", 1), "apply", "-f", "-"); said.Code == 0 || !strings.Contains(said.Stderr, "volume alone") {
		t.Errorf("applied: %+v", said)
	}
	if err := os.Remove(filepath.Join(n.manifests(), "claim.yaml")); err != nil {
		t.Fatal(err)
	}
	n.Eventually("the problem to go", func() bool { return !strings.Contains(n.problems(), "source file") })
	wantFile(t, filepath.Join(path, "f"), "of Docker")
	if said := n.CLI(claim, "apply", "-f", "-"); said.Code == 0 || !strings.Contains(said.Stderr, "volume db") {
		t.Errorf("applied: %+v", said)
	}
}
