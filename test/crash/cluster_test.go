package crash

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/localdriver"
	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
)

// newCluster makes a node whose pods come from an API server.
func newCluster(t *testing.T) *node {
	var n *node
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { n.serve(w, r) }))
	t.Cleanup(s.Close) // runs after the daemon has ended
	n = newNode(t)
	n.server = fakeapi.New()
	text := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], "+
		"clusters: [{name: c, cluster: {server: %q}}], users: [{name: u, user: {}}]}", s.URL)
	if err := os.WriteFile(n.Path("kubeconfig"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	n.flags = []string{"--kubeconfig", n.Path("kubeconfig"), "--host-path-allow", n.Path("host")}
	n.phases = []phase{
		{name: "bound", ready: n.bind, early: true, step: n.hasAll, stop: true}, // the daemon writes what it remembers when it ends
		{name: "restart", early: true, step: n.hasAll},
		{name: "changed", step: n.renew},
		{name: "away", ready: func() { n.away(true) }, early: true, step: n.keepsAll},
		{name: "back", ready: func() { n.away(false) }, early: true, step: n.renew},
		{name: "deleted", step: n.unbind},
	}
	return n
}

// serve answers requests as an API server that accepts only JSON.
func (n *node) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost && !strings.Contains(r.Header.Get("Content-Type"), "json") {
		http.Error(w, "JSON is expected", http.StatusUnsupportedMediaType)
		return
	}
	resp, err := n.server.RoundTrip(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer resp.Body.Close()
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	flush := http.NewResponseController(w)
	for buf := make([]byte, 32<<10); ; {
		if flush.Flush() != nil {
			return
		}
		length, err := resp.Body.Read(buf)
		if length > 0 {
			if _, err := w.Write(buf[:length]); err != nil {
				return
			}
		}
		if errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			n.T.Logf("API server: %v", err)
			return
		}
	}
}

// away makes the API server fail every request, and ends the open watches.
func (n *node) away(yes bool) {
	n.server.Fail(func(fakeapi.Request) *fakeapi.Answer {
		if !yes {
			return nil
		}
		return &fakeapi.Answer{Code: http.StatusServiceUnavailable}
	})
	n.server.EndWatches()
}

// bind puts a pod of this node, and the objects that it names, into the API server.
func (n *node) bind() {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "default", Name: name}
	}
	yes, no, size := true, false, corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	host := map[string]string{corev1.LabelHostname: "node-1"}
	volume := func(name string, s corev1.VolumeSource) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: s}
	}
	pod := &corev1.Pod{ObjectMeta: meta("web"), Spec: corev1.PodSpec{NodeName: "node-1", Volumes: []corev1.Volume{
		volume("scratch", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
		volume("settings", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}),
		volume("key", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "key"}}),
		volume("inline", corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: localdriver.DefaultName}}),
		volume("shelf", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "shelf"}}),
	}}}
	pod.UID = handedUID
	c := corev1.Container{Name: "main", Image: "none"}
	for _, v := range pod.Spec.Volumes {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
	pod.Spec.Containers = []corev1.Container{c}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: meta("shelf"), Spec: corev1.PersistentVolumeClaimSpec{
		VolumeName: "shelf", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: size},
	}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}
	claim.UID = "claim-uid"
	shelf := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "shelf"}, Spec: corev1.PersistentVolumeSpec{
		Capacity: size, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		ClaimRef:               &corev1.ObjectReference{Namespace: "default", Name: "shelf", UID: claim.UID},
		PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: n.Path("host/disk")}},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"node-1"}}},
		}}}},
	}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound}}
	n.server.Put(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: host}},
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: localdriver.DefaultName}, Spec: storagev1.CSIDriverSpec{
			AttachRequired: &no, PodInfoOnMount: &yes, VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral},
		}},
		&corev1.Secret{ObjectMeta: meta("key"), Data: map[string][]byte{"key": []byte("hello")}},
		claim, shelf, n.settings("hello"), pod,
	)
}

func (n *node) settings(text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "settings"}, Data: map[string]string{"greeting": text}}
}

// hasAll checks that the pod has its volumes, and that they have the test's files.
func (n *node) hasAll() error {
	if err := n.mounted("web", 5); err != nil {
		return err
	}
	return errors.Join(n.content("settings", "greeting", "hello"), n.content("key", "key", "hello"), n.writes("scratch", "inline", "shelf"))
}

// renew changes the content of the pod's configMap.
func (n *node) renew() error {
	if n.text != "goodbye" {
		n.server.Put(n.settings("goodbye"))
		n.text = "goodbye"
	}
	return errors.Join(n.mounted("web", 5), n.content("settings", "greeting", "goodbye"), n.writes("scratch", "inline", "shelf"))
}

// keepsAll checks that the pod keeps its volumes and their content while the API server is
// away: the daemon remembers the objects.
func (n *node) keepsAll() error {
	p, err := n.API.Pod(n.ctx(), "default", "web")
	if err != nil {
		return err
	}
	if len(p.Volumes) != 5 {
		return fmt.Errorf("the pod has %d volumes: %+v", len(p.Volumes), p)
	}
	return errors.Join(n.content("settings", "greeting", "goodbye"), n.content("key", "key", "hello"), n.writes("scratch", "inline", "shelf"))
}

// unbind deletes the pod and its claim and volume in the API server.
func (n *node) unbind() error {
	for resource, keys := range map[string][]string{
		"pods": {"default/web"}, "persistentvolumeclaims": {"default/shelf"}, "persistentvolumes": {"shelf"},
	} {
		for _, key := range keys {
			n.server.Delete(resource, key)
		}
	}
	if b, err := os.ReadFile(n.Path("host/disk/f")); err != nil || string(b) != "of shelf" {
		return fmt.Errorf("the host's own directory has %q, %v", b, err)
	}
	return n.noPods()
}
