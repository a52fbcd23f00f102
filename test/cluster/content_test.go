//go:build cluster

package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// noRefusals fails the test for every 403 that the identity got, except for the resources
// in but.
func noRefusals(t *testing.T, user string, but ...string) {
	t.Helper()
	for _, r := range requests(t, user) {
		if r.Response.Code == http.StatusForbidden && !slices.Contains(but, r.resource()) {
			t.Errorf("refused: %s %s", r.Verb, r.RequestURI)
		}
	}
}

// knows waits until the node, whose daemon is down, may read the pod. From then on the
// authorizer lets it read all objects that the pod names, and admission knows the pod too.
func (n *node) knows(pod string) {
	n.t.Helper()
	allowed(n.t, "system:node:"+n.name, []string{"system:nodes"}, authorizationv1.ResourceAttributes{Verb: "get", Version: "v1", Resource: "pods", Namespace: "default", Name: pod})
}

// reviewed returns the user of a token for the audience.
func reviewed(t *testing.T, token, audience string) authv1.UserInfo {
	t.Helper()
	r, err := control.client.AuthenticationV1().TokenReviews().Create(t.Context(), &authv1.TokenReview{
		Spec: authv1.TokenReviewSpec{Token: token, Audiences: []string{audience}},
	}, metav1.CreateOptions{})
	if err != nil || !r.Status.Authenticated {
		t.Fatalf("the token is not taken for %s: %v %+v", audience, err, r)
	}
	return r.Status.User
}

func (n *node) hasFile(path, want string) {
	n.t.Helper()
	n.eventually(path+" has "+want, func() bool {
		b, err := os.ReadFile(path)
		return err == nil && string(b) == want
	})
}

// A secret and a configMap that change also change in a running pod, and a token in a
// projected volume is the pod's own. The node's identity is enough: it may read what its
// pods name.
func TestContentOfTheAPIServerRotates(t *testing.T) {
	t.Parallel()
	ctx, core := t.Context(), control.client.CoreV1()
	secret, err := core.Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "rotating"}, StringData: map[string]string{"key": "one"}}, metav1.CreateOptions{})
	must(t, err)
	config, err := core.ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "rotating"}, Data: map[string]string{"key": "one"}}, metav1.CreateOptions{})
	must(t, err)
	n := asNode(t, "content")
	n.stop()
	createPod(t, podWith(n.name, "reader",
		corev1.Volume{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "rotating"}}},
		corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "rotating"}}}},
		corev1.Volume{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "vault", Path: "token"}},
		}}}},
	))
	n.knows("reader")
	n.start()
	n.hasFile(filepath.Join(n.at("reader", "secret"), "key"), "one")
	n.hasFile(filepath.Join(n.at("reader", "config"), "key"), "one")
	token, err := os.ReadFile(filepath.Join(n.at("reader", "token"), "token"))
	must(t, err)
	user := reviewed(t, string(token), "vault")
	if user.Username != "system:serviceaccount:default:default" || !slices.Equal(user.Extra["authentication.kubernetes.io/pod-name"], []string{"reader"}) {
		t.Errorf("the token is of %+v", user)
	}
	secret.Data = map[string][]byte{"key": []byte("two")}
	_, err = core.Secrets("default").Update(ctx, secret, metav1.UpdateOptions{})
	must(t, err)
	config.Data["key"] = "two"
	_, err = core.ConfigMaps("default").Update(ctx, config, metav1.UpdateOptions{})
	must(t, err)
	n.hasFile(filepath.Join(n.at("reader", "secret"), "key"), "two")
	n.hasFile(filepath.Join(n.at("reader", "config"), "key"), "two")
	n.gone("reader")
	noRefusals(t, "system:node:content")
}

// vault returns a spec by which the driver gets tokens for the audience vault, and the
// pod's name.
func vault() storagev1.CSIDriverSpec {
	yes, no := true, false
	return storagev1.CSIDriverSpec{AttachRequired: &no, PodInfoOnMount: &yes, TokenRequests: []storagev1.TokenRequest{{Audience: "vault"}}}
}

// A driver without a CSIDriver object needs an attachment, which nothing here makes. The
// object appears late and requires none, and the pod goes on. Then the object changes: the
// next volume is published by the new object, with a token that the API server issued, and
// the mounted volume stays as it is.
//
// Items: A04, A05.
// Faults: A079.
// Scenarios: U-04, U-06.
func TestACSIDriverThatIsLateAndChanges(t *testing.T) {
	t.Parallel()
	a := newArray(t, "late.test", nil)
	a.volume("late-1")
	a.volume("late-2")
	n := asNode(t, "late")
	a.serve(n)
	createPod(t, podWith(n.name, "late-1", fromClaim("late-1")))
	n.eventually("the pod waits for an attachment", func() bool {
		p, err := n.api.Pod(t.Context(), "default", "late-1")
		return err == nil && len(p.Volumes) == 1 && strings.Contains(p.Volumes[0].BlockedBy, "VolumeAttachment")
	})
	if a.stagedOn("late-1") != "" {
		t.Error("staged without an attachment")
	}
	no := false
	a.tell(storagev1.CSIDriverSpec{AttachRequired: &no})
	n.mounted("late-1")
	if first := a.publish("late-1"); len(first.GetVolumeContext()) != 0 || len(first.GetPublishContext()) != 0 {
		t.Errorf("published with %v and %v", first.GetVolumeContext(), first.GetPublishContext())
	}
	n.eventually("a volume that needs no attachment is not reported in use", func() bool { return len(n.inUse()) == 0 })
	a.tell(vault())
	var second map[string]string
	pod := ""
	for i := 0; second["csi.storage.k8s.io/pod.name"] == ""; i++ {
		if i == 50 {
			t.Fatalf("published without the pod's name: %v", second)
		}
		if pod != "" { // published before the node had seen the change
			deletePod(t, pod)
			n.eventually("it is gone", func() bool { return a.stagedOn("late-2") == "" })
		}
		pod = fmt.Sprintf("late-2-%d", i)
		createPod(t, podWith(n.name, pod, fromClaim("late-2")))
		n.mounted(pod)
		second = a.publish("late-2").GetVolumeContext()
	}
	var tokens map[string]struct{ Token string }
	if err := json.Unmarshal([]byte(second["csi.storage.k8s.io/serviceAccount.tokens"]), &tokens); err != nil {
		t.Fatalf("tokens: %v in %v", err, second)
	}
	if user := reviewed(t, tokens["vault"].Token, "vault"); !slices.Equal(user.Extra["authentication.kubernetes.io/pod-name"], []string{pod}) {
		t.Errorf("the token is of %+v", user)
	}
	if first := a.publish("late-1"); len(first.GetVolumeContext()) != 0 {
		t.Errorf("what was mounted was published again, with %v", first.GetVolumeContext())
	}
	deletePod(t, "late-1")
	n.gone(pod)
	noRefusals(t, "system:node:late", "persistentvolumeclaims", "volumeattachments")
}
