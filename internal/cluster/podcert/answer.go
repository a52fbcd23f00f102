package podcert

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// errDeleted means that a request was deleted before it was answered. The next call makes
// another.
var errDeleted = errors.New("it was deleted before the signer answered")

// errNoAnswer means that a signer takes longer than patience.
var errNoAnswer = errors.New("the signer has not answered yet")

// wait returns the request once the signer has answered it. It selects requests of this
// node, because a node may not list others.
func (q *Requester) wait(ctx context.Context, namespace, name string) (*certificatesv1.PodCertificateRequest, error) {
	fail := func(err error) (*certificatesv1.PodCertificateRequest, error) {
		return nil, fmt.Errorf("PodCertificateRequest %s/%s: %w", namespace, name, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errNoAnswer)
	defer cancel()
	requests := q.requests(namespace)
	options := metav1.ListOptions{FieldSelector: "spec.nodeName=" + q.c.NodeName + ",metadata.name=" + name}
	list, err := requests.List(ctx, options)
	switch {
	case err != nil && ctx.Err() != nil:
		return fail(context.Cause(ctx))
	case err != nil:
		return fail(err)
	case len(list.Items) == 0:
		return fail(errDeleted)
	case answered(&list.Items[0]):
		return &list.Items[0], nil
	}
	options.ResourceVersion = list.ResourceVersion
	w, err := requests.Watch(ctx, options)
	if err != nil {
		return fail(err)
	}
	defer w.Stop()
	for {
		select {
		case event, open := <-w.ResultChan():
			if !open {
				return fail(errNoAnswer)
			}
			r, ok := requestOf(event.Object)
			switch {
			case event.Type == watch.Error:
				return fail(apierrors.FromObject(event.Object))
			case !ok:
			case event.Type == watch.Deleted:
				return fail(errDeleted)
			case answered(r):
				return r, nil
			}
		case <-ctx.Done():
			return fail(context.Cause(ctx))
		}
	}
}

// condition returns the condition of type kind if its status is True, else nil.
func condition(r *certificatesv1.PodCertificateRequest, kind string) *metav1.Condition {
	for i, c := range r.Status.Conditions {
		if c.Type == kind && c.Status == metav1.ConditionTrue {
			return &r.Status.Conditions[i]
		}
	}
	return nil
}

func answered(r *certificatesv1.PodCertificateRequest) bool {
	return condition(r, certificatesv1.PodCertificateRequestConditionTypeIssued) != nil || refusal(r) != nil
}

// refusal returns an ErrRefused with the signer's reason if it denied or failed the
// request, else nil.
func refusal(r *certificatesv1.PodCertificateRequest) error {
	for _, kind := range []string{
		certificatesv1.PodCertificateRequestConditionTypeDenied,
		certificatesv1.PodCertificateRequestConditionTypeFailed,
	} {
		if c := condition(r, kind); c != nil {
			return fmt.Errorf("%w: PodCertificateRequest %s is %s: %s: %s", ErrRefused, r.Name, c.Type, c.Reason, c.Message)
		}
	}
	return nil
}

// issued checks the certificate that the signer issued for key, and returns it as a Credential.
func issued(r *certificatesv1.PodCertificateRequest, key crypto.Signer, who string) (Credential, error) {
	s := r.Status
	if s.BeginRefreshAt == nil || s.NotAfter == nil || !s.NotAfter.After(time.Now()) {
		return Credential{}, errors.New("issued without status.beginRefreshAt, or without a status.notAfter in the future")
	}
	chain, err := checkChain(s.CertificateChain, key)
	if err != nil {
		return Credential{}, err
	}
	text, err := encoded(key)
	if err != nil {
		return Credential{}, err
	}
	renew := renewAt(s.BeginRefreshAt.Time, s.NotAfter.Time, who)
	if soonest := time.Now().Add(retryAfter); renew.Before(soonest) {
		renew = soonest // the node's clock is ahead of the signer's: the next one would be due at once too
	}
	return Credential{Key: text, Chain: chain, Expires: s.NotAfter.Time, RenewAt: renew}, nil
}
