package podcert_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/kubeclient"
	"github.com/csi-volmgr/csi-volmgr/internal/cluster/podcert"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
)

// world is a node of a cluster, and a signer in it.
type world struct {
	t      *testing.T
	server *fakeapi.Server
	certs  *kubeclient.Certificates
	q      *podcert.Requester
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, server: fakeapi.New()}
	core, _ := w.server.Clients(nil)
	w.certs = w.server.Certificates(nil)
	w.server.Put(
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "runner", UID: "account-uid"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"}},
	)
	w.q = podcert.New(podcert.Config{Certificates: w.certs, Core: core, Beta: w.server.CertificatesBeta(nil), NodeName: "n1"})
	return w
}

func request(keyType string) podcert.Request {
	return podcert.Request{
		Pod: state.Pod{UID: "pod-uid", Namespace: "shop", Name: "web", ServiceAccount: "runner"},
		Source: corev1.PodCertificateProjection{
			SignerName: "x.y/z", KeyType: keyType, MaxExpirationSeconds: new(int32(3600)), UserAnnotations: map[string]string{"x.y/a": "b"},
		},
	}
}

func (w *world) get() (podcert.Credential, error) { return w.q.Get(w.t.Context(), request("ED25519")) }

// later calls get in the background and returns a channel for its error.
func (w *world) later() <-chan error {
	done := make(chan error, 1)
	go func() { _, err := w.get(); done <- err }()
	synctest.Wait()
	return done
}

// open returns the unanswered requests.
func (w *world) open() (open []certificatesv1.PodCertificateRequest) {
	w.t.Helper()
	all, err := w.certs.PodCertificateRequests("").List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range all.Items {
		if len(r.Status.Conditions) == 0 {
			open = append(open, r)
		}
	}
	return open
}

// chain returns a certificate for a key, with words around it.
func (w *world) chain(public crypto.PublicKey) string {
	w.t.Helper()
	_, signer, err := ed25519.GenerateKey(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(nil, c, c, public, signer)
	if err != nil {
		w.t.Fatal(err)
	}
	return "words\n" + string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der, Headers: map[string]string{"a": "b"}})) + "more\n"
}

// issue makes the signer issue a certificate for an hour, to be renewed after half of it.
func (w *world) issue(r certificatesv1.PodCertificateRequest) {
	w.t.Helper()
	stub, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Status.CertificateChain = w.chain(stub.PublicKey)
	w.answer(r, "Issued")
}

func (w *world) answer(r certificatesv1.PodCertificateRequest, kind string) {
	if kind == "Issued" {
		half, hour := metav1.NewTime(time.Now().Add(30*time.Minute)), metav1.NewTime(time.Now().Add(time.Hour))
		r.Status.BeginRefreshAt, r.Status.NotAfter = &half, &hour
	}
	r.Status.Conditions = []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue, Reason: "Because", Message: "of the test"}}
	w.server.Put(&r)
}

// issued gets a certificate that the signer issues while get waits.
func (w *world) issued() {
	w.t.Helper()
	done := w.later()
	open := w.open()
	if len(open) != 1 {
		w.t.Fatalf("%d requests are open, want 1", len(open))
	}
	w.issue(open[0])
	if err := <-done; err != nil {
		w.t.Fatal(err)
	}
}

// asked counts the requests that were made since its last call.
func (w *world) asked() (n int) {
	for _, r := range w.server.Took() {
		if strings.HasPrefix(r, "create podcertificaterequests") {
			n++
		}
	}
	return n
}

// A certificate is requested for a key made here, once until its time has come, and then
// for another key.
//
// Items: L12.
func TestACertificateIsAskedForIssuedAndRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		done := w.later()
		r := w.open()[0]
		s := r.Spec
		if got := fmt.Sprint(s.SignerName, s.PodName, s.PodUID, s.ServiceAccountName, s.ServiceAccountUID, s.NodeName, s.NodeUID, *s.MaxExpirationSeconds, s.UnverifiedUserAnnotations); got !=
			"x.y/zwebpod-uidrunneraccount-uidn1node-uid3600 map[x.y/a:b]" || r.OwnerReferences[0].UID != "pod-uid" || r.Namespace != "shop" {
			t.Errorf("asked for %s: %+v", got, r.ObjectMeta)
		}
		w.issue(r)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		first, err := w.get()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tls.X509KeyPair(first.Chain, first.Key); err != nil {
			t.Errorf("not a pair: %v", err)
		}
		if text := string(first.Chain); strings.Contains(text, "words") || strings.Contains(text, "a: b") || strings.Contains(fmt.Sprintf("%v %+v %#v", first, first, first), "PRIVATE") {
			t.Errorf("%s, %v", text, first)
		}
		if in := time.Until(first.RenewAt); in < 30*time.Minute || in > 33*time.Minute {
			t.Errorf("renewed in %v", in)
		}
		time.Sleep(29 * time.Minute)
		if again, err := w.get(); err != nil || string(again.Key) != string(first.Key) || w.asked() != 1 {
			t.Errorf("before its time: %v, %v", again, err)
		}
		time.Sleep(5 * time.Minute)
		w.issued()
		if next, err := w.get(); err != nil || string(next.Key) == string(first.Key) || w.asked() != 1 {
			t.Errorf("after its time: %v, %v", next, err)
		}
	})
}

// The clock of the signer may be behind the node's, so that each certificate is due as soon as it is issued. It is
// renewed after a minute, not at once and for ever.
func TestACertificateThatIsDueAtOnceIsKeptForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		done := w.later()
		r := w.open()[0]
		stub, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
		if err != nil {
			t.Fatal(err)
		}
		r.Status.CertificateChain = w.chain(stub.PublicKey)
		due, end := metav1.NewTime(time.Now().Add(-10*time.Minute)), metav1.NewTime(time.Now().Add(20*time.Minute))
		r.Status.BeginRefreshAt, r.Status.NotAfter = &due, &end
		r.Status.Conditions = []metav1.Condition{{Type: certificatesv1.PodCertificateRequestConditionTypeIssued, Status: metav1.ConditionTrue}}
		w.server.Put(&r)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if c, err := w.get(); err != nil || time.Until(c.RenewAt) < 59*time.Second || w.asked() != 1 {
			t.Errorf("again at once: %v, renewed in %v, %v", c, time.Until(c.RenewAt), err)
		}
		time.Sleep(2 * time.Minute)
		w.issued()
	})
}

// A server that has the requests as v1beta1 only is asked in that version.
//
// Items: L12.
func TestAnOlderServerIsAskedAsItCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		served := "v1beta1"
		w.server.Fail(func(r fakeapi.Request) *fakeapi.Answer {
			if r.Resource == "podcertificaterequests" && r.API != served && r.FieldSelector+r.BodyText != "" {
				return &fakeapi.Answer{Code: http.StatusNotFound}
			}
			return nil
		})
		w.issued()
		time.Sleep(35 * time.Minute)
		w.asked()
		w.issued()
		if n := w.asked(); n != 1 {
			t.Errorf("%d requests to renew it, want 1", n)
		}
		time.Sleep(2 * time.Hour)
		served = "v1"
		w.issued()
	})
}

// A call does not wait for ever for a slow signer. Calls share one request, and make
// another one when it was deleted or has waited too long.
//
// Items: L12.
func TestASlowSignerIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for range 3 {
			if _, err := w.get(); err == nil || !strings.Contains(err.Error(), "signer x.y/z for pod shop/web") || !strings.Contains(err.Error(), "has not answered yet") {
				t.Errorf("got %v", err)
			}
		}
		if n := w.asked(); n != 1 {
			t.Errorf("%d requests were made, want 1", n)
		}
		name := w.open()[0].Name
		done := w.later()
		w.server.Delete("podcertificaterequests", "shop/"+name)
		if err := <-done; err == nil || !strings.Contains(err.Error(), "deleted") {
			t.Errorf("got %v", err)
		}
		if _, err := w.get(); err == nil || w.asked() != 1 {
			t.Errorf("after it was deleted: %v", err)
		}
		time.Sleep(11 * time.Minute)
		done = w.later()
		if n := w.asked(); n != 1 {
			t.Errorf("after its time %d requests were made, want another", n)
		}
		w.issue(w.open()[1])
		w.issue(w.open()[0])
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A refusal is shown, and the signer is asked no more for this pod.
//
// Items: L12.
func TestARefusalIsShownAndStays(t *testing.T) {
	for _, kind := range []string{"Denied", "Failed"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.issued()
			w.asked()
			time.Sleep(35 * time.Minute)
			done := w.later()
			w.answer(w.open()[0], kind)
			err := <-done
			if !errors.Is(err, podcert.ErrRefused) || !strings.Contains(err.Error(), kind+": Because: of the test") {
				t.Errorf("got %v", err)
			}
			time.Sleep(30 * time.Minute)
			if _, err := w.get(); !errors.Is(err, podcert.ErrRefused) || w.asked() != 1 {
				t.Errorf("later: %v", err)
			}
			time.Sleep(2 * time.Hour) // no caller asks: the pod is gone
			w.issued()
		})
	}
}

// A certificate that cannot be renewed is used until it expires; then the reason is shown.
//
// Items: L12.
func TestWhatCannotBeRenewedIsGoodUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.issued()
		w.asked()
		w.server.Fail(func(fakeapi.Request) *fakeapi.Answer { return &fakeapi.Answer{Code: http.StatusForbidden} })
		time.Sleep(35 * time.Minute)
		c, err := w.get()
		if err != nil || time.Until(c.RenewAt) != time.Minute || w.asked() != 0 {
			t.Errorf("%v, renewed in %v, %v", c, time.Until(c.RenewAt), err)
		}
		time.Sleep(30 * time.Minute)
		if _, err := w.get(); err == nil || !strings.Contains(err.Error(), "service account shop/runner") {
			t.Errorf("after its end: %v", err)
		}
		w.server.Fail(func(r fakeapi.Request) *fakeapi.Answer {
			if r.Verb == "create" {
				return &fakeapi.Answer{Code: http.StatusForbidden}
			}
			return nil
		})
		if _, err := w.get(); err == nil || !strings.Contains(err.Error(), "make a PodCertificateRequest") {
			t.Errorf("refused by the server: %v", err)
		}
	})
}

// A pod never gets a certificate for another key, nor a malformed one.
func TestACertificateForAnotherKeyIsNotGivenToAPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		public, _, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		for chain, want := range map[string]string{
			w.chain(public): "another key", "": "no certificate",
			"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n": "the chain",
			"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n": "of type",
		} {
			done := w.later()
			r := w.open()[0]
			r.Status.CertificateChain = chain
			w.answer(r, "Issued")
			if err := <-done; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: got %v, want %q", chain, err, want)
			}
		}
	})
}

// A key has the type that the pod asks for.
//
// Items: L12.
func TestKeysAreOfTheTypeThatIsAskedFor(t *testing.T) {
	kinds := map[string]string{"ED25519": "Ed25519", "ECDSAP256": "ECDSA 256", "ECDSAP384": "ECDSA 384", "ECDSAP521": "ECDSA 521", "RSA3072": "RSA 3072"}
	if !testing.Short() {
		kinds["RSA4096"] = "RSA 4096"
	}
	for kind, want := range kinds {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			done := make(chan error, 1)
			go func() { _, err := w.q.Get(t.Context(), request(kind)); done <- err }()
			synctest.Wait()
			r := w.open()[0]
			stub, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
			if err != nil || stub.CheckSignature() != nil {
				t.Fatal(err, stub.CheckSignature())
			}
			if got := describe(stub.PublicKey); got != want {
				t.Errorf("%s: got %s, want %s", kind, got, want)
			}
			w.issue(r)
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	w := newWorld(t)
	if _, err := w.q.Get(t.Context(), request("DSA")); err == nil || !strings.Contains(err.Error(), `keyType: found "DSA"`) || w.asked() != 0 {
		t.Errorf("got %v", err)
	}
}

func describe(key crypto.PublicKey) string {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return fmt.Sprintf("RSA %d", k.N.BitLen())
	case *ecdsa.PublicKey:
		return fmt.Sprintf("ECDSA %d", k.Curve.Params().BitSize)
	case ed25519.PublicKey:
		return "Ed25519"
	}
	return fmt.Sprintf("%T", key)
}
