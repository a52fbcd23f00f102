package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	objects "github.com/csi-volmgr/csi-volmgr/internal/wants/manifest"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// pvOf returns a PersistentVolume as a person writes one, with more fields of its spec.
func (n *node) pvOf(name, handle, more string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: %s}, spec: {capacity: {storage: 64Mi},
  accessModes: [ReadWriteOnce], storageClassName: class, csi: {driver: %s, volumeHandle: %s}%s}}`, name, n.driver.name, handle, more)
}

// madeFor returns the name of a claim's volume.
func (n *node) madeFor(claim string) string {
	n.T.Helper()
	n.handleOf(claim)
	return n.Do("", "get", "pvc", claim, "-o", "jsonpath={.volume}")
}

// holds waits until a new pod has claim data, and compares its bytes.
func (n *node) holds(pod, want string) {
	n.T.Helper()
	n.Apply(harness.Pod(pod, harness.FromClaim("data", "data")))
	n.Mounted(pod)
	wantFile(n.T, filepath.Join(n.HostPath(pod, "data"), "f"), want)
	n.DeletePods(pod)
	n.NoVolumes()
}

// twoClaims makes the claims data and other, whose volumes say so, and returns the name of data's volume and
// both handles.
func (n *node) twoClaims() (name, data, other string) {
	n.T.Helper()
	n.Apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo), claim("other", "64Mi", fileSystem, rwo),
		harness.Pod("web", harness.FromClaim("data", "data"), harness.FromClaim("other", "other")))
	n.Mounted("web")
	write(n.T, filepath.Join(n.HostPath("web", "data"), "f"), "of data")
	write(n.T, filepath.Join(n.HostPath("web", "other"), "f"), "of other")
	n.DeletePods("web")
	n.NoVolumes()
	return n.madeFor("data"), n.handleOf("data"), n.handleOf("other")
}

// A PersistentVolume of the name of a volume that was made for a claim is refused, with what it should say, at
// the API and in a manifest, before and after a restart: the claim's pods have the claim's data. One that says
// the same, or only another reclaim policy, is not refused.
func TestTheNameOfAMadeVolumeIsItsOwn(t *testing.T) {
	eachKind(t, func(n *node) {
		t := n.T
		name, handle, other := n.twoClaims()
		refused := func(why, doc string) {
			t.Helper()
			r := n.CLI(doc, "apply", "-f", "-")
			for _, word := range []string{"volume " + name, why, "for claim default/data"} {
				if r.Code == 0 || !strings.Contains(r.Stderr, word) {
					t.Errorf("exit code %d, no word of %q:\n%s%s", r.Code, word, r.Stdout, r.Stderr)
				}
			}
		}
		field := fmt.Sprintf("spec.csi.volumeHandle: found %s, want %s", other, handle)
		refused(field, n.pvOf(name, other, ""))
		refused(field, n.pvOf(name, other, ", claimRef: {namespace: default, name: data}"))
		refused("spec.claimRef: found \"evil/thief\", want default/data", n.pvOf(name, handle, ", claimRef: {namespace: evil, name: thief}"))
		refused(field, strings.Join(append(owned("evil", "thief", name), n.pvOf(name, other, "")), "\n---\n"))
		refused("spec.mountOptions: found noatime, want none", n.pvOf(name, handle, ", mountOptions: [noatime]"))
		n.holds("a", "of data")

		file := filepath.Join(n.manifests(), "pv.yaml")
		write(t, file, n.pvOf(name, other, ", claimRef: {namespace: default, name: data}"))
		problem := func() {
			t.Helper()
			n.Eventually("a problem line", func() bool {
				said := n.Do("", "get", "problems")
				return strings.Contains(said, name) && strings.Contains(said, field) && strings.Contains(said, "file")
			})
		}
		problem()
		n.holds("b", "of data")
		n.daemon.Kill()
		n.start()
		n.DriverUp(n.driver.name)
		problem()
		n.holds("c", "of data")
		write(t, file, n.pvOf(name, handle, ""))
		n.Eventually("no problem with the same volume", func() bool { return !strings.Contains(n.Do("", "get", "problems"), name) })
		n.Do(n.pvOf(name, handle, ""), "apply", "-f", "-")
		n.holds("d", "of data")
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		n.Do(n.pvOf(name, handle, ""), "apply", "-f", "-")
		n.DeleteClaims("data", "other")
		n.nothingLeft() // not even the applied PersistentVolume: it went with its data
	})
}

// The reclaim policy of a made volume is what the PersistentVolume of its name says, at the API and in a
// manifest, after a restart, too: delete pvc keeps the data, or deletes it.
func TestTheReclaimPolicyOfAMadeVolumeIsChanged(t *testing.T) {
	eachKind(t, func(n *node) {
		t := n.T
		name, handle, _ := n.twoClaims()
		says := func(want string) {
			t.Helper()
			if got := n.Do("", "get", "pv", name, "-o", "jsonpath={.reclaimPolicy}"); got != want {
				t.Errorf("get pv says %s, want %s", got, want)
			}
		}
		says("Delete")
		n.Do(n.pvOf(name, handle, ", persistentVolumeReclaimPolicy: Retain"), "apply", "-f", "-")
		says("Retain")
		n.daemon.Kill()
		n.start()
		n.DriverUp(n.driver.name)
		says("Retain")
		if said := n.Do("", "delete", "pvc", "data"); !strings.Contains(said, "is kept with its data") {
			t.Errorf("delete pvc says %q", said)
		}
		if got := n.driver.proxy.count("DeleteVolume"); got != 0 {
			t.Fatalf("%d calls of DeleteVolume", got)
		}
		n.Apply(claim("data", "64Mi", fileSystem, rwo))
		n.holds("a", "of data")

		n.Do(n.pvOf(name, handle, ""), "delete", "-f", "-")
		says("Retain") // what was said last
		file := filepath.Join(n.manifests(), "pv.yaml")
		write(t, file, n.pvOf(name, handle, ", persistentVolumeReclaimPolicy: Delete"))
		n.Eventually("the manifest's policy", func() bool {
			return n.Do("", "get", "pv", name, "-o", "jsonpath={.reclaimPolicy}") == "Delete"
		})
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		n.Eventually("the manifest to go", func() bool { return !strings.Contains(n.Do("", "get", "problems"), name) })
		n.DeleteClaims("data", "other")
		if got := n.driver.proxy.count("DeleteVolume"); got != 2 {
			t.Errorf("%d calls of DeleteVolume, want 2", got)
		}
		n.nothingLeft()
	})
}

// While a volume is made or deleted its name is not free: neither the API nor a manifest gets it.
func TestTheNameOfAVolumeOnItsWayIsNotFree(t *testing.T) {
	eachKind(t, func(n *node) {
		t := n.T
		name, _, other := n.twoClaims()
		doc, file := n.pvOf(name, other, ""), filepath.Join(n.manifests(), "pv.yaml")
		during := func(call string, begin func()) {
			t.Helper()
			held := n.driver.proxy.hold(call, false)
			var begun sync.WaitGroup
			begun.Go(begin)
			<-held.reached
			if r := n.CLI(doc, "apply", "-f", "-"); r.Code == 0 || !strings.Contains(r.Stderr, "making or deleting the volume of this name, of claim default/data") {
				t.Errorf("%s: exit code %d: %s%s", call, r.Code, r.Stdout, r.Stderr)
			}
			write(t, file, doc)
			n.Eventually("a problem line", func() bool { return strings.Contains(n.Do("", "get", "problems"), "making or deleting") })
			if r := n.CLI("", "get", "pv", name); r.Code == 0 {
				t.Errorf("%s: get pv shows it: %s", call, r.Stdout)
			}
			close(held.on)
			begun.Wait()
		}
		remove := func() {
			if err := os.Remove(file); err != nil {
				t.Error(err)
			}
		}
		during("DeleteVolume", func() { n.Do("", "delete", "pvc", "data") })
		n.Eventually("the manifest's volume, once the name is free", func() bool {
			return n.CLI("", "get", "pv", name, "-o", "jsonpath={.handle}").Stdout == other
		})
		n.Apply(claim("data", "64Mi", fileSystem, rwo)) // the name is the manifest's now
		n.Eventually("the claim to be told", func() bool {
			return strings.Contains(n.Do("", "explain", "pvc", "data"), "PersistentVolume "+name+" of source file has the name")
		})
		during("CreateVolume", remove)
		if got := n.handleOf("data"); got == other {
			t.Errorf("claim data has volume %s", got)
		}
		remove()
		n.Eventually("the problem to go", func() bool { return !strings.Contains(n.Do("", "get", "problems"), name) })
		n.DeleteClaims("data", "other")
		n.nothingLeft()
	})
}

// An earlier version let an applied PersistentVolume stand in the place of a made one. It goes on to: pods have
// its data, over restarts, and get problems names it. Once it is withdrawn the claim has its own volume, whose
// name no other gets.
func TestAVolumeThatStandsForAMadeOneGoesOn(t *testing.T) {
	eachKind(t, func(n *node) {
		t := n.T
		name, handle, other := n.twoClaims()
		n.daemon.Kill()
		doc := n.ofAnEarlierVersion("default/data", "default/other", n.pvOf(name, other, ", claimRef: {namespace: default, name: data}"))
		up := func() {
			t.Helper()
			n.start()
			n.DriverUp(n.driver.name)
		}
		up()
		n.Apply(harness.Pod("web", harness.FromClaim("data", "data")))
		n.Mounted("web")
		path := filepath.Join(n.HostPath("web", "data"), "f")
		for range 2 {
			wantFile(t, path, "of other")
			said := n.Do("", "get", "problems")
			for _, word := range []string{name, "it stands in the place of another volume", "found " + other + ", want " + handle, "csi-volmgr delete -f FILE"} {
				if !strings.Contains(said, word) {
					t.Errorf("get problems has no word of %s: %s", word, said)
				}
			}
			n.Do(doc, "apply", "-f", "-") // as people do daily
			n.daemon.Kill()
			up()
			n.Mounted("web")
		}
		n.Do(doc, "delete", "-f", "-")
		wantFile(t, path, "of other") // what a pod has, it keeps
		n.DeletePods("web")
		n.NoVolumes()
		n.holds("a", "of data")
		write(t, filepath.Join(n.manifests(), "pv.yaml"), doc)
		n.Eventually("a problem line", func() bool { return strings.Contains(n.Do("", "get", "problems"), "found "+other) })
		n.daemon.Kill()
		up()
		n.holds("b", "of data")
		if err := os.Remove(filepath.Join(n.manifests(), "pv.yaml")); err != nil {
			t.Fatal(err)
		}
		n.Eventually("the manifest to go", func() bool { return !strings.Contains(n.Do("", "get", "problems"), name) })
		n.DeleteClaims("data", "other")
		n.nothingLeft()
	})
}

// ofAnEarlierVersion makes the claim's record one of a version that let PersistentVolumes stand in the place of
// made ones, and doc, with the volume_context of another claim's volume, an object that was applied to it. It
// returns doc. No daemon may run.
func (n *node) ofAnEarlierVersion(claim, other, doc string) string {
	t := n.T
	t.Helper()
	b, err := journal.OpenBolt(n.Path("state/state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	records, err := b.LoadBucket(t.Context(), controller.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	var of struct{ Context json.RawMessage }
	is := records.Sound[claim]
	was := bytes.Replace(is, []byte(`"sole":true,`), nil, 1)
	if err := json.Unmarshal(records.Sound[other], &of); err != nil || len(was) == len(is) {
		t.Fatalf("%v, %s", err, is)
	}
	if of.Context != nil {
		doc = strings.Replace(doc, "csi: {", "csi: {volumeAttributes: "+string(of.Context)+", ", 1)
	}
	read, err := objects.Decode("-", []byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	value, err := objects.Keep(read[0])
	if err != nil {
		t.Fatal(err)
	}
	key, err := resolve.KeyOf(read[0])
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(b.CommitBucket(t.Context(), controller.Bucket, map[string][]byte{claim: was}),
		b.CommitBucket(t.Context(), "objects", map[string][]byte{key.Kind + "//" + key.Name: value}))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}
