package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// withUID returns a pod with an emptyDir v and a uid of the author's choice; "" for none.
func withUID(namespace, name, uid string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s, uid: %q}, spec: {containers: [{name: c, image: x,
  volumeMounts: [{name: v, mountPath: /v}]}], volumes: [{name: v, emptyDir: {}}]}}`, name, namespace, uid)
}

// The first pod keeps its uid, and with it its volumes: another author's pod that asks for it is refused by name,
// from the API and from a manifest, over restarts, and gets none of the first pod's data afterwards.
func TestAnotherPodsUIDIsRefused(t *testing.T) {
	t.Parallel()
	n := newPlace(t)
	dirOf := func(namespace, name string) string {
		t.Helper()
		mounts, err := n.API.Mounts(t.Context(), namespace, name)
		if err != nil || len(mounts) != 1 {
			t.Fatalf("mounts of %s/%s: %v, %v", namespace, name, mounts, err)
		}
		return mounts[0].HostPath
	}
	mounted := func(namespace, name string) {
		t.Helper()
		n.Do("", "wait", "pod", name, "-n", namespace, "--for=mounted", "--timeout=1m")
	}
	goesOn := func(when string) {
		t.Helper()
		for namespace, name := range map[string]string{"bank": "web", "shop": "copied"} {
			mounted(namespace, name)
			n.Do("", "get", "mounts", "--pod", name, "-n", namespace, "--container", "c")
			wantFile(t, filepath.Join(dirOf(namespace, name), "f"), "of "+name)
		}
		n.Eventually(when+" both newcomers to be problems", func() bool {
			said := n.Do("", "get", "problems")
			return strings.Contains(said, "pod evil/evil") && strings.Contains(said, "which pod bank/web has") &&
				strings.Contains(said, "pod bank/late") && strings.Contains(said, "which pod shop/copied has")
		})
	}
	n.start()
	n.Apply(withUID("bank", "web", ""))
	write(t, filepath.Join(n.manifests(), "z.yaml"), withUID("shop", "copied", "0f0f0f0f-1"))
	for namespace, name := range map[string]string{"bank": "web", "shop": "copied"} {
		n.Eventually(name+" to be listed", func() bool { return strings.Contains(n.Do("", "get", "pods", "-A"), name) })
		mounted(namespace, name)
		write(t, filepath.Join(dirOf(namespace, name), "f"), "of "+name)
	}
	dir := dirOf("bank", "web")
	uid := strings.Split(strings.TrimPrefix(dir, filepath.Join(n.Root, "pods")+"/"), "/")[0]
	said := n.CLI(withUID("evil", "evil", uid), "apply", "-f", "-")
	if want := "metadata.uid: found " + uid + ", which pod bank/web has; want one of its own"; said.Code == 0 || !strings.Contains(said.Stderr, want) {
		t.Errorf("apply: %+v", said)
	}
	file := filepath.Join(n.manifests(), "a.yaml")
	write(t, file, manifest(withUID("evil", "evil", uid), withUID("bank", "late", "0f0f0f0f-1")))
	goesOn("after a manifest")
	n.daemon.Kill()
	n.start()
	goesOn("after a restart")

	n.Do("", "delete", "pod", "web", "-n", "bank")
	n.Eventually("evil/evil to have its own volume", func() bool {
		return n.CLI("", "wait", "pod", "evil", "-n", "evil", "--for=mounted", "--timeout=1m").Code == 0
	})
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("the volume of evil/evil has %v, %v", left, err)
	}
	if said := n.Do("", "get", "problems"); strings.Contains(said, "evil/evil") || !strings.Contains(said, "shop/copied") {
		t.Errorf("problems: %s", said)
	}
}
