//go:build cluster

package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// compact makes etcd forget all versions before the current one.
func (p *plane) compact(t *testing.T) {
	t.Helper()
	var etcd string
	for _, arg := range p.apiArgs {
		if to, ok := strings.CutPrefix(arg, "--etcd-servers="); ok {
			etcd = to
		}
	}
	ask := func(path, body string) []byte {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, etcd+path, bytes.NewBufferString(body))
		must(t, err)
		resp, err := http.DefaultClient.Do(r)
		must(t, err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		must(t, err)
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("etcd: %s: %s: %s", path, resp.Status, b)
		}
		return b
	}
	var status struct{ Header struct{ Revision string } }
	must(t, json.Unmarshal(ask("/v3/maintenance/status", "{}"), &status))
	ask("/v3/kv/compaction", fmt.Sprintf(`{"revision":%q,"physical":true}`, status.Header.Revision))
}

// instance starts another API server on the same etcd, which remembers no earlier version,
// until the test ends. It returns the server's address and its audit log.
func (p *plane) instance(t *testing.T, name string) (address, audit string) {
	t.Helper()
	ports, err := freePorts(1)
	must(t, err)
	audit = p.path(name + ".audit.log")
	args := slices.Clone(p.apiArgs)
	for i, arg := range args {
		switch {
		case strings.HasPrefix(arg, "--secure-port="):
			args[i] = "--secure-port=" + ports[0]
		case strings.HasPrefix(arg, "--audit-log-path="):
			args[i] = "--audit-log-path=" + audit
		}
	}
	s, err := p.launch(p.path(name+".log"), nil, p.binary, append([]string{"kube-apiserver"}, args...)...)
	must(t, err)
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.done
	})
	address = "127.0.0.1:" + ports[0]
	c := p.at(t, address)
	must(t, p.within(t.Context(), name+" is ready", func() bool {
		b, err := c.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context())
		return err == nil && string(b) == "ok"
	}))
	return address, audit
}

// at returns a client of the API server at the address.
func (p *plane) at(t *testing.T, address string) kubernetes.Interface {
	t.Helper()
	c := rest.CopyConfig(p.admin)
	c.Host = "https://" + address
	client, err := kubernetes.NewForConfig(c)
	must(t, err)
	return client
}

// redirect makes the wire lead to another address.
func (w *wire) redirect(to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.to = to
}

// forgets waits until the API server answers that the version is too old.
func forgets(t *testing.T, c kubernetes.Interface, version string) {
	t.Helper()
	must(t, control.within(t.Context(), "version "+version+" is too old", func() bool {
		w, err := c.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
		if err != nil {
			return apierrors.IsResourceExpired(err)
		}
		defer w.Stop()
		e := <-w.ResultChan()
		return e.Type == watch.Error && apierrors.IsResourceExpired(apierrors.FromObject(e.Object))
	}))
}

// A node is cut off. Meanwhile a pod goes, another comes, a configMap and a secret change,
// and etcd is compacted. The node then reaches another API server, which has forgotten the
// versions from which the node's watches continue. The node learns of all changes by one
// list for each watch, and mounts stay.
//
// Faults: A220.
func TestVersionsThatTheServerForgot(t *testing.T) {
	t.Parallel()
	core, yes := control.client.CoreV1(), true
	a := newArray(t, "gap.test", &storagev1.CSIDriverSpec{AttachRequired: &yes})
	for _, name := range []string{"gap-stays", "gap-goes", "gap-comes"} {
		a.volume(name)
	}
	content := func(text string) (*corev1.ConfigMap, *corev1.Secret) {
		meta := metav1.ObjectMeta{Name: "gap", Namespace: "default"}
		return &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"k": text}}, &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"k": text}}
	}
	config, secret := content("before")
	_, err := core.ConfigMaps("default").Create(t.Context(), config, metav1.CreateOptions{})
	must(t, err)
	_, err = core.Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{})
	must(t, err)
	id, line := wired(t, mustIdentity(t, "gap"))
	n := newNode(t, "gap", id)
	a.serve(n)
	createPod(t, podWith(n.name, "gap-stays", fromClaim("gap-stays"),
		corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "gap"}}}},
		corev1.Volume{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "gap"}}}))
	createPod(t, podWith(n.name, "gap-goes", fromClaim("gap-goes")))
	read := func(volume string) string {
		b, err := os.ReadFile(filepath.Join(n.at("gap-stays", volume), "k"))
		must(t, err)
		return string(b)
	}
	stays := n.at("gap-stays", "data")
	n.mounted("gap-goes")
	if read("config")+read("secret") != "beforebefore" {
		t.Fatal("another content is mounted")
	}
	before, stages := n.mounts(), a.count()
	known, err := core.Pods("default").List(t.Context(), metav1.ListOptions{})
	must(t, err)
	line.set(true)
	n.showsProblem()

	deletePod(t, "gap-goes")
	createPod(t, podWith(n.name, "gap-comes", fromClaim("gap-comes")))
	config, secret = content("after")
	_, err = core.ConfigMaps("default").Update(t.Context(), config, metav1.UpdateOptions{})
	must(t, err)
	_, err = core.Secrets("default").Update(t.Context(), secret, metav1.UpdateOptions{})
	must(t, err)
	control.compact(t)
	address, audit := control.instance(t, "gap")
	forgets(t, control.at(t, address), known.ResourceVersion)
	if now := n.mounts(); !slices.Equal(now, before) {
		t.Errorf("mounted before %q, while it was cut off %q", before, now)
	}
	line.redirect(address)
	line.set(false)

	n.mounted("gap-comes")
	n.eventually("the pod that went has no volume", func() bool { return !a.has("gap-goes") })
	n.eventually("the content is the new one", func() bool { return read("config")+read("secret") == "afterafter" })
	if n.at("gap-stays", "data") != stays || a.count() != stages+1 {
		t.Errorf("staged %d times more, want once", a.count()-stages)
	}
	// For each kind: a watch that gets 410, a list, and a watch. Nodes are not in the list,
	// since each kind has its own pause and the daemon may not have asked for its Node yet.
	kinds := []string{"pods", "configmaps", "secrets", "csidrivers"}
	var count map[string]int
	n.eventually("each kind is listed and watched again", func() bool {
		count = map[string]int{}
		for _, r := range requestsIn(t, audit, "system:node:gap") {
			count[r.Verb+" "+r.resource()]++
		}
		return !slices.ContainsFunc(kinds, func(k string) bool { return count["list "+k] < 1 || count["watch "+k] < 2 })
	})
	for _, kind := range kinds {
		if lists, watches := count["list "+kind], count["watch "+kind]; lists > 2 || watches > 3 {
			t.Errorf("%s: %d lists, want 1 or 2, and %d watches, want 2 or 3", kind, lists, watches)
		}
	}
	deletePod(t, "gap-comes")
	n.gone("gap-stays")
}

// mustIdentity returns the identity of the node with this name.
func mustIdentity(t *testing.T, node string) *rest.Config {
	t.Helper()
	id, err := control.identity("system:node:"+node, "system:nodes")
	must(t, err)
	return id
}

// has reports whether the volume is staged on a node.
func (a *array) has(volume string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.staged[volume] != ""
}
