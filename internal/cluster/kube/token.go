package kube

import (
	"context"
	"fmt"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/token"
	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
)

// Token requests a token of the pod's service account, bound to the pod, as described at
// [csiclient.TokenSource]. The node authorizer allows it for this node's pods, and for audiences that the
// pod's volumes or their CSIDrivers name.
func (p *Provider) Token(ctx context.Context, r csiclient.TokenRequest) (csiclient.Token, error) {
	if err := token.Check(r); err != nil {
		return csiclient.Token{}, err
	}
	seconds := int64(token.DefaultLifetime / time.Second)
	if r.Lifetime != 0 {
		seconds = int64(r.Lifetime / time.Second)
	}
	ask := &authv1.TokenRequest{Spec: authv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef: &authv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: r.Pod.Name,
			UID: types.UID(r.Pod.UID),
		},
	}}
	if r.Audience != "" {
		ask.Spec.Audiences = []string{r.Audience}
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	issued := time.Now()
	got, err := p.config.Core.CreateToken(ctx, r.Pod.Namespace, r.Pod.ServiceAccount, ask)
	if err != nil {
		return csiclient.Token{}, fmt.Errorf("request a token of service account %s/%s for pod %s: %s: %w",
			r.Pod.Namespace, r.Pod.ServiceAccount, r.Pod.Name, outage.Explain(err), outage.Wrap(err))
	}
	return csiclient.Token{Value: got.Status.Token, Issued: issued, Expires: got.Status.ExpirationTimestamp.Time}, nil
}
