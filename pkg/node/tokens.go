package node

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/files"
	"github.com/csi-volmgr/csi-volmgr/pkg/podcert"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/pkg/token"
)

// issuesTokens reports whether there is somebody who issues service account tokens.
func (n *Node) issuesTokens() bool { return n.cfg.Tokens != nil || n.cfg.Cluster != nil }

// fileCertificate returns what gives projected volumes their certificates; nil
// where there is no cluster.
func (n *Node) fileCertificate() func(context.Context, state.Pod, corev1.PodCertificateProjection) (files.Credential,
	error) {
	if n.cfg.Cluster == nil {
		return nil
	}
	return func(ctx context.Context, pod state.Pod, src corev1.PodCertificateProjection) (files.Credential, error) {
		c, err := n.cluster.Certificates.Get(ctx, podcert.Request{Pod: pod, Source: src}) // made after the builtins
		return files.Credential{Key: c.Key, Chain: c.Chain, RenewAt: c.RenewAt}, err
	}
}

// fileToken returns what gives projected volumes their tokens; nil where there
// is nobody who issues any.
func (n *Node) fileToken() func(context.Context, state.Pod, string, time.Duration) (string, time.Time, error) {
	if !n.issuesTokens() {
		return nil
	}
	return func(ctx context.Context, pod state.Pod, audience string, lifetime time.Duration) (string, time.Time, error) {
		r := token.Request{Pod: pod, Audience: audience, Lifetime: lifetime}
		t, err := n.tokens.Token(ctx, r) // of the cluster it is made after the builtins
		if err != nil {
			return "", time.Time{}, err
		}
		return t.Value, token.RenewAt(r, t), nil
	}
}
