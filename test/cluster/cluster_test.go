//go:build cluster

package cluster

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// must fails the test if err is not nil.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// made is must for an object that several tests make alike: it may exist already.
func made(t *testing.T, err error) {
	t.Helper()
	if !apierrors.IsAlreadyExists(err) {
		must(t, err)
	}
}

// storage makes the CSIDriver object of the local driver, which requires attachments, and a
// class whose volumes are made where the first pod runs.
func storage(t *testing.T) {
	t.Helper()
	yes, late := true, storagev1.VolumeBindingWaitForFirstConsumer
	_, err := control.client.StorageV1().CSIDrivers().Create(t.Context(), &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: driverName}, Spec: storagev1.CSIDriverSpec{AttachRequired: &yes},
	}, metav1.CreateOptions{})
	made(t, err)
	_, err = control.client.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: driverName, VolumeBindingMode: &late,
	}, metav1.CreateOptions{})
	made(t, err)
}

// create makes a claim and a pod with it. The pod's selector names the node, and the
// scheduler places the pod.
func create(t *testing.T, node, name string) {
	t.Helper()
	class, no := "local", false
	_, err := control.client.CoreV1().PersistentVolumeClaims("default").Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("32Mi")}},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	_, err = control.client.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: &no, NodeSelector: map[string]string{corev1.LabelHostname: node},
			Containers: []corev1.Container{{Name: "c", Image: "none", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}},
			Volumes:    []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}},
		},
	}, metav1.CreateOptions{})
	must(t, err)
}

// life makes a pod on the node, writes into its volume, and deletes the pod.
func life(t *testing.T, n *node, pod string) {
	t.Helper()
	create(t, n.name, pod)
	at := n.mounted(pod)
	if len(n.inUse()) != 1 {
		t.Errorf("mounted, and in use: %v", n.inUse())
	}
	if err := os.WriteFile(filepath.Join(at, "hello"), []byte("world"), 0o600); err != nil {
		t.Error(err)
	}
	n.gone(pod)
	n.eventually("it is detached", func() bool {
		l, err := control.client.StorageV1().VolumeAttachments().List(t.Context(), metav1.ListOptions{})
		return err == nil && !slices.ContainsFunc(l.Items, func(a storagev1.VolumeAttachment) bool { return a.Spec.NodeName == n.name })
	})
}

// The scheduler places the pod by the driver's topology, its volume is made, bound and
// attached, and the node mounts it until the pod is deleted, all under the node's own
// identity. The test counts the requests; docs/scale.md has the numbers.
//
// Items: J01.
func TestPodOfANodeIdentity(t *testing.T) {
	storage(t)
	id, err := control.identity("system:node:alpha", "system:nodes")
	must(t, err)
	n := newNode(t, "alpha", id)
	n.provisions()
	life(t, n, "first")
	before := len(requests(t, "system:node:alpha"))
	life(t, n, "second")
	all := requests(t, "system:node:alpha")
	budget(t, all, all[before:])
	for _, r := range all {
		// The node may not watch claims, nor read an attachment that is not made yet.
		if r.Response.Code == http.StatusForbidden && r.ObjectRef.Resource != "persistentvolumeclaims" && r.ObjectRef.Resource != "volumeattachments" {
			t.Errorf("refused: %s %s", r.Verb, r.RequestURI)
		}
	}
}

// What a pod with one claim may cost on a running node (docs/scale.md).
const (
	maxReads  = 6
	maxWrites = 4
)

// budget prints the requests, and fails the test if there are more than docs/scale.md
// allows.
func budget(t *testing.T, all, pod []request) {
	t.Helper()
	for _, r := range all {
		s := r.selector()
		if (r.Verb == "list" || r.Verb == "watch") && !strings.HasPrefix(s, "metadata.name=") && !strings.HasPrefix(s, "spec.nodeName=") {
			t.Errorf("asks for more than one object or this node's: %s %s", r.Verb, r.RequestURI)
		}
	}
	count := map[string]int{}
	reads, writes := map[string]bool{}, 0
	for _, r := range pod {
		count[r.Verb+" "+r.resource()]++
		switch {
		case r.Verb == "get" || r.Verb == "list":
			// The node asks for an attachment again until it is made.
			reads[r.resource()+" "+r.ObjectRef.Name+r.selector()] = true
		case r.Verb != "watch":
			writes++
		}
	}
	for _, what := range slices.Sorted(maps.Keys(count)) {
		t.Logf("a pod with one claim, from its coming to its going: %d %s", count[what], what)
	}
	t.Logf("a pod with one claim: %d objects read, %d writes", len(reads), writes)
	if len(reads) > maxReads || writes > maxWrites {
		t.Errorf("%d objects read and %d writes, want at most %d and %d", len(reads), writes, maxReads, maxWrites)
	}
}

// role applies the objects of deploy/kustomize/rbac.yaml. It returns their rules and the
// configuration of a client that uses the service account.
func role(t *testing.T) ([]rbacv1.PolicyRule, *rest.Config) {
	t.Helper()
	_, err := control.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "csi-volmgr"}}, metav1.CreateOptions{})
	made(t, err)
	text, err := os.ReadFile("../../deploy/kustomize/rbac.yaml")
	must(t, err)
	var account corev1.ServiceAccount
	var clusterRole rbacv1.ClusterRole
	var binding rbacv1.ClusterRoleBinding
	docs := strings.Split(string(text), "\n---\n")
	for i, into := range []any{&account, &clusterRole, &binding} {
		must(t, yaml.UnmarshalStrict([]byte(docs[i]), into))
	}
	_, err = control.client.CoreV1().ServiceAccounts("csi-volmgr").Create(t.Context(), &account, metav1.CreateOptions{})
	made(t, err)
	_, err = control.client.RbacV1().ClusterRoles().Create(t.Context(), &clusterRole, metav1.CreateOptions{})
	made(t, err)
	_, err = control.client.RbacV1().ClusterRoleBindings().Create(t.Context(), &binding, metav1.CreateOptions{})
	made(t, err)
	token, err := control.client.CoreV1().ServiceAccounts("csi-volmgr").CreateToken(t.Context(), "csi-volmgr", &authv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, err)
	allowed(t, "system:serviceaccount:csi-volmgr:csi-volmgr", []string{"system:serviceaccounts"}, authorizationv1.ResourceAttributes{Verb: "list", Version: "v1", Resource: "pods"})
	return clusterRole.Rules, &rest.Config{Host: control.url, BearerToken: token.Status.Token}
}

// allowed waits until the API server lets the user do it. Its authorizers watch pods, roles
// and bindings themselves, and may still refuse a client that has seen an object earlier
// than they have.
func allowed(t *testing.T, user string, groups []string, what authorizationv1.ResourceAttributes) {
	t.Helper()
	must(t, control.within(t.Context(), user+" may "+what.Verb+" "+what.Resource+" "+what.Name, func() bool {
		r, err := control.client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: append(groups, "system:authenticated"), ResourceAttributes: &what},
		}, metav1.CreateOptions{})
		return err == nil && r.Status.Allowed
	}))
}

// rare are the rules that the life of a pod with one claim does not need; other tests use
// them.
var rare = []string{
	"get endpoints", "get secrets", "list secrets", "watch secrets", "list configmaps", "watch configmaps", "create serviceaccounts/token", "delete csinodes", "update csinodes",
	"get persistentvolumeclaims", "patch persistentvolumeclaims/status", "list persistentvolumes",
	"patch events", // counts repeated events
	"patch pods/status", "patch csinodes/status",
	"list clustertrustbundles", "watch clustertrustbundles", "get serviceaccounts",
	"create podcertificaterequests", "list podcertificaterequests", "watch podcertificaterequests",
}

// The ClusterRole of deploy/ is enough, and each of its rules is used.
func TestClusterRole(t *testing.T) {
	storage(t)
	rules, identity := role(t)
	n := newNode(t, "beta", identity)
	n.provisions()
	life(t, n, "third")
	before := len(requests(t, "system:serviceaccount:csi-volmgr:csi-volmgr"))
	life(t, n, "fourth")
	used := map[string]bool{}
	all := requests(t, "system:serviceaccount:csi-volmgr:csi-volmgr")
	for _, r := range all {
		used[r.Verb+" "+r.resource()] = true
		if r.Response.Code == http.StatusForbidden {
			t.Errorf("refused: %s %s", r.Verb, r.RequestURI)
		}
	}
	budget(t, all, all[before:])
	for _, rule := range rules {
		for _, res := range rule.Resources {
			for _, verb := range rule.Verbs {
				if what := verb + " " + res; !used[what] && !slices.Contains(rare, what) {
					t.Errorf("the rule is not needed: %s", what)
				}
			}
		}
	}
}
