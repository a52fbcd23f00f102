package kubeclient_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/kubeclient"
)

// server gives every request the same answer, and remembers the last one.
type server struct {
	code   int
	answer string
	asked  string
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	s.asked = fmt.Sprintf("%s %s %s", r.Method, r.URL.RequestURI(), strings.TrimSpace(string(body)))
	return &http.Response{
		StatusCode: s.code, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(s.answer)), Request: r,
	}, nil
}

func clients(t *testing.T, s *server) *kubeclient.Clients {
	t.Helper()
	c, err := kubeclient.New(&rest.Config{Host: "http://api.test", QPS: -1}, &http.Client{Transport: s})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Each verb sends the request that client-go's typed clients send.
func TestRequests(t *testing.T) {
	seconds := int64(7)
	for _, tc := range []struct {
		name string
		call func(context.Context, *kubeclient.Clients) error
		want string
	}{
		{"get", func(ctx context.Context, c *kubeclient.Clients) error {
			_, err := c.Core.Secrets("shop").Get(ctx, "s", metav1.GetOptions{ResourceVersion: "5"})
			return err
		}, "GET /api/v1/namespaces/shop/secrets/s?resourceVersion=5 "},
		{"list", func(ctx context.Context, c *kubeclient.Clients) error {
			_, err := c.Core.Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=n1", Limit: 3})
			return err
		}, "GET /api/v1/pods?fieldSelector=spec.nodeName%3Dn1&limit=3 "},
		{"watch", func(ctx context.Context, c *kubeclient.Clients) error {
			w, err := c.Storage.CSIDrivers().Watch(ctx, metav1.ListOptions{TimeoutSeconds: &seconds})
			if err == nil {
				w.Stop()
			}
			return err
		}, "GET /apis/storage.k8s.io/v1/csidrivers?timeout=7s&timeoutSeconds=7&watch=true "},
		{"create", func(ctx context.Context, c *kubeclient.Clients) error {
			_, err := c.CertificatesBeta.PodCertificateRequests("shop").Create(ctx, &certificatesv1beta1.PodCertificateRequest{}, metav1.CreateOptions{})
			return err
		}, `POST /apis/certificates.k8s.io/v1beta1/namespaces/shop/podcertificaterequests {"kind":"PodCertificateRequest","apiVersion":"certificates.k8s.io/v1beta1",`},
		{"update", func(ctx context.Context, c *kubeclient.Clients) error {
			_, err := c.Storage.CSINodes().Update(ctx, "n1", &storagev1.CSINode{}, metav1.UpdateOptions{})
			return err
		}, `PUT /apis/storage.k8s.io/v1/csinodes/n1 {"kind":"CSINode","apiVersion":"storage.k8s.io/v1",`},
		{"patch", func(ctx context.Context, c *kubeclient.Clients) error {
			_, err := c.Core.Nodes().Patch(ctx, "n1", types.MergePatchType, []byte("{}"), "status")
			return err
		}, "PATCH /api/v1/nodes/n1/status {}"},
		{"delete", func(ctx context.Context, c *kubeclient.Clients) error {
			uid := types.UID("u")
			return c.Storage.CSINodes().Delete(ctx, "n1", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		}, `DELETE /apis/storage.k8s.io/v1/csinodes/n1 {"kind":"DeleteOptions","apiVersion":"storage.k8s.io/v1","preconditions":{"uid":"u"}}`},
		{"token", func(ctx context.Context, c *kubeclient.Clients) error {
			_, err := c.Core.CreateToken(ctx, "shop", "runner", &authenticationv1.TokenRequest{})
			return err
		}, `POST /api/v1/namespaces/shop/serviceaccounts/runner/token {"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1",`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &server{code: http.StatusOK, answer: "{}"}
			if err := tc.call(t.Context(), clients(t, s)); err != nil && tc.name != "watch" {
				t.Error(err)
			}
			if !strings.HasPrefix(s.asked, tc.want) {
				t.Errorf("asked\n%s, want\n%s", s.asked, tc.want)
			}
		})
	}
}

// Errors of the server, in every group, can be told apart, and an answer in another version
// than requested is read.
func TestAnswers(t *testing.T) {
	s := &server{code: http.StatusNotFound, answer: `{"kind":"Status","apiVersion":"v1","reason":"NotFound","code":404,"details":{"name":"x"}}`}
	c := clients(t, s)
	for what, get := range map[string]func() error{
		"core": func() error { _, err := c.Core.Endpoints("a").Get(t.Context(), "x", metav1.GetOptions{}); return err },
		"storage": func() error {
			_, err := c.Storage.VolumeAttachments().List(t.Context(), metav1.ListOptions{})
			return err
		},
		"certificates": func() error {
			_, err := c.Certificates.ClusterTrustBundles().List(t.Context(), metav1.ListOptions{})
			return err
		},
		"beta": func() error {
			_, err := c.CertificatesBeta.ClusterTrustBundles().List(t.Context(), metav1.ListOptions{})
			return err
		},
	} {
		if err := get(); !apierrors.IsNotFound(err) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	s.code, s.answer = http.StatusOK, `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"x"},"data":{"k":"dg=="}}`
	if got, err := c.Core.Secrets("a").Get(t.Context(), "x", metav1.GetOptions{}); err != nil || string(got.Data["k"]) != "v" {
		t.Errorf("got %v, %v", got, err)
	}
	s.answer = `{"type":"ADDED","object":{"kind":"ClusterTrustBundle","apiVersion":"certificates.k8s.io/v1","metadata":{"name":"x"}}}`
	w, err := c.CertificatesBeta.ClusterTrustBundles().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if e := <-w.ResultChan(); e.Type != "ADDED" {
		t.Errorf("got %+v", e)
	}
}
