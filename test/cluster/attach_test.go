//go:build cluster

package cluster

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	hooksv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// slowDelete delays each deletion of the driver's VolumeAttachments: an admission webhook
// answers when the test calls release. The channel gets the name of each attachment that
// the API server asks about.
func slowDelete(t *testing.T, driver string) (asked <-chan string, release func()) {
	t.Helper()
	names, answer := make(chan string, 16), make(chan struct{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, "no review", http.StatusBadRequest)
			return
		}
		names <- review.Request.Name
		select {
		case <-answer:
		case <-r.Context().Done():
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		_ = json.NewEncoder(w).Encode(review)
	})}
	go func() { _ = s.ServeTLS(l, control.path("server.crt"), control.path("server.key")) }()
	t.Cleanup(func() { _ = s.Close() })
	ca, err := os.ReadFile(control.path("ca.crt"))
	must(t, err)
	url, seconds, none, ignore := "https://"+l.Addr().String()+"/", int32(30), hooksv1.SideEffectClassNone, hooksv1.Ignore
	hook := &hooksv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: driver}, Webhooks: []hooksv1.ValidatingWebhook{{
		Name: "slow.delete.test", ClientConfig: hooksv1.WebhookClientConfig{URL: &url, CABundle: ca}, AdmissionReviewVersions: []string{"v1"},
		SideEffects: &none, FailurePolicy: &ignore, TimeoutSeconds: &seconds,
		MatchConditions: []hooksv1.MatchCondition{{Name: "driver", Expression: "oldObject.spec.attacher == '" + driver + "'"}},
		Rules: []hooksv1.RuleWithOperations{{
			Operations: []hooksv1.OperationType{hooksv1.Delete},
			Rule:       hooksv1.Rule{APIGroups: []string{"storage.k8s.io"}, APIVersions: []string{"v1"}, Resources: []string{"volumeattachments"}},
		}},
	}}}
	hooks := control.client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err = hooks.Create(t.Context(), hook, metav1.CreateOptions{})
	must(t, err)
	return names, func() {
		close(answer)
		must(t, hooks.Delete(t.Context(), driver, metav1.DeleteOptions{}))
	}
}

// A pod is replaced on its node while the controller detaches the volume. The
// VolumeAttachment exists, with attached true, until the API server has deleted it. The
// next pod waits for the Node's volumesAttached, and gets the volume when it is attached
// again. The array sees no detachment of a staged volume.
//
// Faults: A180.
func TestAVolumeThatIsBeingDetachedIsNotMounted(t *testing.T) {
	t.Parallel()
	yes := true
	a := newArray(t, "slow.test", &storagev1.CSIDriverSpec{AttachRequired: &yes})
	a.volume("slow")
	n := asNode(t, "slow")
	a.serve(n)
	asked, release := slowDelete(t, a.name)
	createPod(t, podWith(n.name, "slow-1", fromClaim("slow")))
	n.mounted("slow-1")
	deletePod(t, "slow-1")
	n.eventually("the attachment is being deleted", func() bool {
		select {
		case <-asked:
			return true
		default:
			return false
		}
	})
	createPod(t, podWith(n.name, "slow-2", fromClaim("slow")))
	n.eventually("the pod waits for the Node's status", func() bool {
		p, err := n.api.Pod(t.Context(), "default", "slow-2")
		if err == nil && p.Ready {
			t.Fatal("mounted while its detachment is under way")
		}
		return err == nil && len(p.Volumes) == 1 && strings.Contains(p.Volumes[0].BlockedBy, "volumesAttached")
	})
	release()
	n.mounted("slow-2")
	n.gone("slow-2")
}

// Another program replaces status.volumesInUse while the volume is mounted: the daemon
// writes the list again, and shows a problem. The pod goes while a process keeps its mount
// busy: the volume stays in the list, and attached, until the mount is gone.
//
// Faults: A181.
func TestAnOverwrittenListIsWrittenAgain(t *testing.T) {
	t.Parallel()
	yes := true
	a := newArray(t, "erased.test", &storagev1.CSIDriverSpec{AttachRequired: &yes})
	a.volume("erased")
	n := asNode(t, "erased")
	a.serve(n)
	createPod(t, podWith(n.name, "erased", fromClaim("erased")))
	at := n.at("erased", "data")
	want := []corev1.UniqueVolumeName{"kubernetes.io/csi/erased.test^erased"}
	_, err := control.client.CoreV1().Nodes().Patch(t.Context(), n.name, types.MergePatchType, []byte(`{"status":{"volumesInUse":null}}`), metav1.PatchOptions{}, "status")
	must(t, err)
	n.eventually("the list is written again", func() bool { return slices.Equal(n.inUse(), want) })
	n.eventually("and told", func() bool {
		return strings.Contains(n.problems(), "another program replaced status.volumesInUse of Node erased")
	})
	held, err := os.Create(filepath.Join(at, "held"))
	must(t, err)
	deletePod(t, "erased")
	n.eventually("the unmount is tried", func() bool {
		v, err := n.api.Volume(t.Context(), "erased.test^erased")
		for _, m := range v.Volume.Mounts {
			return err == nil && strings.Contains(m.Retry().Error, "busy")
		}
		return false
	})
	if got := n.inUse(); !slices.Equal(got, want) || a.stagedOn("erased") != n.name {
		t.Errorf("in use: %v, staged on %q", got, a.stagedOn("erased"))
	}
	must(t, held.Close())
	n.eventually("nothing is left", func() bool { return len(n.mounts()) == 0 && len(n.inUse()) == 0 })
}
