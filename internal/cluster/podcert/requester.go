package podcert

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/kubeclient"
)

const (
	// patience is how long one call waits for a signer. The next call waits for the same
	// request.
	patience = 20 * time.Second
	// abandonAfter is how old an unanswered request gets before another is made, because
	// its signer may have stopped looking at it.
	abandonAfter = 10 * time.Minute
	// retryAfter is the pause after a failed renewal, and the least age at which a certificate is renewed.
	retryAfter = time.Minute
	// forgetAfter is how long an entry that no pod asks for is kept: its pod is gone.
	forgetAfter = time.Hour
	// answerTime bounds each request to the API server except watches.
	answerTime = 30 * time.Second
)

// Config is the configuration of a [Requester]. All fields except Beta and Logger are
// required.
type Config struct {
	// Beta is used if the server does not serve Certificates.
	Beta         *kubeclient.CertificatesBeta
	Certificates *kubeclient.Certificates
	Core         *kubeclient.Core
	NodeName     string
	// Logger may be nil.
	Logger *slog.Logger
}

// Requester gets certificates and keeps them until they must be renewed. It may be used
// from any goroutine.
type Requester struct {
	c    Config
	beta atomic.Bool // the server has only Beta

	mu      sync.Mutex // guards the field below; never held during a request
	entries map[string]*entry
}

// entry is the state of one Request.
type entry struct {
	turn chan struct{} // capacity 1: a lock that guards the next three fields

	have    Credential // zero if there is none yet
	pending *pending
	refused error

	// used and expires are guarded by Requester.mu.
	used, expires time.Time
}

// pending is a PodCertificateRequest that the signer has not answered.
type pending struct {
	name string
	key  crypto.Signer
	made time.Time
}

// New returns a Requester without certificates.
func New(c Config) *Requester {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Requester{c: c, entries: map[string]*entry{}}
}

// Get returns a certificate for the pod and its key: the cached one until it must be
// renewed, else a new one. If the signer does not answer in time, Get returns an error and
// the next call continues to wait. If a certificate cannot be renewed, Get returns it until
// it expires. But once the signer has refused, Get always returns ErrRefused.
func (q *Requester) Get(ctx context.Context, r Request) (Credential, error) {
	e := q.entry(r)
	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		return Credential{}, fmt.Errorf("certificate of signer %s: %w", r.Source.SignerName, context.Cause(ctx))
	}
	defer func() { <-e.turn }()
	now := time.Now()
	good := now.Before(e.have.Expires)
	if good && now.Before(e.have.RenewAt) {
		return e.have, nil
	}
	err := e.refused
	if err == nil {
		err = q.renew(ctx, r, e)
	}
	switch {
	case err == nil:
		q.keep(e)
		return e.have, nil
	case good && !errors.Is(err, ErrRefused):
		q.c.Logger.Warn("certificate of a pod cannot be renewed; the current one is used until it expires",
			"pod", string(r.Pod.UID), "signer", r.Source.SignerName, "expires", e.have.Expires, "err", err)
		e.have.RenewAt = now.Add(retryAfter)
		return e.have, nil
	}
	return Credential{}, fmt.Errorf("certificate of signer %s for pod %s/%s: %w", r.Source.SignerName, r.Pod.Namespace,
		r.Pod.Name, err)
}

// entry returns the entry of r, and creates it if needed. It also removes entries that no
// pod has asked for recently.
func (q *Requester) entry(r Request) *entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for key, e := range q.entries {
		if now.Sub(e.used) > forgetAfter && now.After(e.expires) {
			delete(q.entries, key)
		}
	}
	e := q.entries[r.key()]
	if e == nil {
		e = &entry{turn: make(chan struct{}, 1)}
		q.entries[r.key()] = e
	}
	e.used = now
	return e
}

func (q *Requester) keep(e *entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e.expires = e.have.Expires
}

// renew makes a PodCertificateRequest if none is pending, and waits for the answer.
func (q *Requester) renew(ctx context.Context, r Request, e *entry) error {
	if e.pending != nil && time.Since(e.pending.made) > abandonAfter {
		e.pending = nil
	}
	if e.pending == nil {
		p, err := q.ask(ctx, r)
		if err != nil {
			return err
		}
		e.pending = p
	}
	answer, err := q.wait(ctx, r.Pod.Namespace, e.pending.name)
	if errors.Is(err, errDeleted) {
		e.pending = nil
	}
	if err != nil {
		return err
	}
	p := e.pending
	e.pending = nil
	if e.refused = refusal(answer); e.refused != nil {
		return e.refused
	}
	have, err := issued(answer, p.key, r.key())
	if err != nil {
		return fmt.Errorf("PodCertificateRequest %s: %w", p.name, err)
	}
	e.have = have
	return nil
}

// ask makes a key and a PodCertificateRequest for it.
func (q *Requester) ask(ctx context.Context, r Request) (*pending, error) {
	key, err := newKey(r.Source.KeyType)
	if err != nil {
		return nil, err
	}
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, fmt.Errorf("make a request for the key: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	account, err := q.c.Core.ServiceAccounts(r.Pod.Namespace).Get(ctx, r.Pod.ServiceAccount, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get service account %s/%s: %w", r.Pod.Namespace, r.Pod.ServiceAccount, err)
	}
	node, err := q.c.Core.Nodes().Get(ctx, q.c.NodeName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get node %s: %w", q.c.NodeName, err)
	}
	ask := &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Pod.Namespace, Name: "csi-volmgr-" + strings.ToLower(rand.Text()),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Pod", Name: r.Pod.Name,
				UID: types.UID(r.Pod.UID),
			}},
		},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: r.Source.SignerName, PodName: r.Pod.Name, PodUID: types.UID(r.Pod.UID),
			ServiceAccountName: r.Pod.ServiceAccount, ServiceAccountUID: account.UID,
			NodeName: types.NodeName(q.c.NodeName), NodeUID: node.UID,
			MaxExpirationSeconds: r.Source.MaxExpirationSeconds, StubPKCS10Request: stub,
			UnverifiedUserAnnotations: r.Source.UserAnnotations,
		},
	}
	if err := q.create(ctx, ask); err != nil {
		return nil, fmt.Errorf("make a PodCertificateRequest: %w", err)
	}
	return &pending{name: ask.Name, key: key, made: time.Now()}, nil
}
