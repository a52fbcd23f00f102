package outage

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
)

// cluster is an API server and the attach-detach controller.
type cluster struct {
	t      *testing.T
	server *fakeapi.Server
	// between wraps a node's transport to the server.
	between func(http.RoundTripper, *node) http.RoundTripper
	// many is set if there are too many volumes to read volumesInUse at each call.
	many bool
	poke chan struct{} // capacity 1: there is something to attach or detach

	mu    sync.Mutex // guards the fields below
	nodes map[string]*attached
}

// attached is the attach-detach controller's state of a node.
type attached struct {
	node  *node
	wants map[string]int  // number of pods that want it, by handle
	has   map[string]bool // by handle: it is really attached
}

// newCluster returns a cluster without delay between the nodes and the server.
func newCluster(t *testing.T) *cluster {
	yes := true
	c := &cluster{
		t: t, server: fakeapi.New(), nodes: map[string]*attached{}, poke: make(chan struct{}, 1),
		between: func(next http.RoundTripper, _ *node) http.RoundTripper { return next },
	}
	c.server.Put(&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driverName}, Spec: storagev1.CSIDriverSpec{AttachRequired: &yes}})
	ended, done := make(chan struct{}), make(chan struct{})
	go func() { c.control(ended); close(done) }()
	t.Cleanup(func() {
		close(ended)
		<-done
		advance(time.Second) // so that requests of the stopped nodes are canceled
	})
	return c
}

// nodeAuthorizer refuses requests that a node's own identity may not make.
func nodeAuthorizer(r fakeapi.Request) *fakeapi.Answer {
	if strings.HasPrefix(r.Resource, "persistentvolume") && r.Verb != "get" {
		return &fakeapi.Answer{Code: http.StatusForbidden}
	}
	return nil
}

// bind puts a pod on the node with its own claim and, unless config is empty, a
// configMap.
func (c *cluster) bind(node, name, config string) {
	size := corev1.ResourceList{"storage": resource.MustParse("1Gi")}
	uid := types.UID("claim-" + name)
	c.server.Put(&corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv-" + name},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: size},
	}, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, ClaimRef: &corev1.ObjectReference{Namespace: "default", Name: name, UID: uid},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: name}},
		},
	})
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{NodeName: node}}
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}
	if config != "" {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: config}},
		}})
	}
	main := corev1.Container{Name: "c"}
	for _, v := range p.Spec.Volumes {
		main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
	p.Spec.Containers = []corev1.Container{main}
	c.server.Put(p)
	c.want(node, name, 1)
}

// config adds a configMap.
func (c *cluster) config(name string) {
	c.server.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"k": "v"}})
}

// unbind deletes the pod.
func (c *cluster) unbind(node, name string) {
	c.server.Delete("pods", "default/"+name)
	c.want(node, name, -1)
}

func (c *cluster) want(node, handle string, more int) {
	c.mu.Lock()
	c.nodes[node].wants[handle] += more
	c.mu.Unlock()
	c.look()
}

// look makes the controller look again.
func (c *cluster) look() {
	select {
	case c.poke <- struct{}{}:
	default:
	}
}

// control attaches what pods want, and detaches volumes that the Node no longer has in
// use. It detaches in Kubernetes' order: remove from volumesAttached, look at
// volumesInUse again, detach. The next look, some seconds later, does the rest.
func (c *cluster) control(ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case <-c.poke:
		}
		time.Sleep(time.Second)
		c.mu.Lock()
		left := false
		for _, a := range c.nodes {
			left = c.reconcile(a) || left
		}
		c.mu.Unlock()
		if left {
			time.AfterFunc(5*time.Second, c.look)
		}
	}
}

func attachmentName(node, handle string) string {
	return resolve.AttachmentKey(driverName, handle, node).Name
}

func uniqueName(handle string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + driverName + "^" + handle)
}

// reconcile does what it can for one node, and reports whether something is left. The
// caller holds c.mu.
func (c *cluster) reconcile(a *attached) (left bool) {
	var attach, detach []string
	for handle, pods := range a.wants {
		switch {
		case pods > 0 && !a.has[handle]:
			attach = append(attach, handle)
		case pods == 0 && a.has[handle]:
			detach = append(detach, handle)
		}
	}
	if len(attach)+len(detach) == 0 {
		return false
	}
	for _, handle := range attach {
		a.has[handle] = true
		c.server.Put(&storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: attachmentName(a.node.name, handle)},
			Spec:       storagev1.VolumeAttachmentSpec{Attacher: driverName, NodeName: a.node.name},
			Status:     storagev1.VolumeAttachmentStatus{Attached: true},
		})
	}
	used := c.inUse(a.node.name)
	var going []string
	for _, handle := range detach {
		if left = left || used[handle]; !used[handle] {
			delete(a.has, handle)
			going = append(going, handle)
		}
	}
	if len(attach)+len(going) == 0 {
		return left
	}
	c.writeAttached(a)
	used = c.inUse(a.node.name)
	for _, handle := range going {
		if used[handle] { // it came back into use
			a.has[handle], left = true, true
			continue
		}
		a.node.mu.Lock()
		if a.node.staged[handle] {
			c.t.Errorf("%s is detached from %s while it is staged", handle, a.node.name)
		}
		a.node.mu.Unlock()
		c.server.Delete("volumeattachments", attachmentName(a.node.name, handle))
	}
	return left
}

// inUse returns the Node's status.volumesInUse, by handle.
func (c *cluster) inUse(node string) map[string]bool {
	n := &corev1.Node{}
	c.server.Get("nodes", node, n)
	used := map[string]bool{}
	for _, name := range n.Status.VolumesInUse {
		_, handle, _ := strings.Cut(string(name), "^")
		used[handle] = true
	}
	return used
}

// writeAttached writes the Node's status.volumesAttached.
func (c *cluster) writeAttached(a *attached) {
	n := &corev1.Node{}
	c.server.Get("nodes", a.node.name, n)
	n.Status.VolumesAttached = nil
	for handle := range a.has {
		n.Status.VolumesAttached = append(n.Status.VolumesAttached, corev1.AttachedVolume{Name: uniqueName(handle)})
	}
	c.server.Put(n)
}

// judge fails the test if a call makes something of a volume that is not attached or not
// in the Node's volumesInUse. The caller holds n.mu.
func (c *cluster) judge(n *node, handle string) {
	if _, is := attachment(c, n.name, handle); !is {
		c.t.Errorf("%s: something is made of %s, which is not attached", n.name, handle)
	}
	if !c.many && !c.inUse(n.name)[handle] {
		c.t.Errorf("%s: something is made of %s, which is not in use", n.name, handle)
	}
}

func attachment(c *cluster, node, handle string) (*storagev1.VolumeAttachment, bool) {
	a := &storagev1.VolumeAttachment{}
	return a, c.server.Get("volumeattachments", attachmentName(node, handle), a)
}

// until advances time until ok returns true, and returns how long that took.
func until(t *testing.T, what string, most time.Duration, ok func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > most {
			t.Fatalf("%s: not after %s", what, most)
		}
		advance(time.Second)
	}
	return time.Since(began)
}

func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// counted counts requests by verb and resource.
func counted(took []string) map[string]int {
	count := map[string]int{}
	for _, r := range took {
		f := strings.Fields(r)
		count[f[0]+" "+f[1]]++
	}
	return count
}

// sum returns the number of requests whose verb and resource begin with what.
func sum(count map[string]int, what string) (n int) {
	for key, times := range count {
		if strings.HasPrefix(key, what) {
			n += times
		}
	}
	return n
}

// slow is a network on which every request takes a while.
type slow struct {
	next  http.RoundTripper
	takes time.Duration
}

func (s slow) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(s.takes):
		return s.next.RoundTrip(r)
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// locked is a source of random numbers for many goroutines.
type locked struct {
	mu  sync.Mutex
	src rand.Source
}

func (l *locked) Uint64() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.src.Uint64()
}
