package wire

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/podcert"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/files"
	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// issuesTokens reports whether something issues service account tokens.
func (c Config) issuesTokens() bool { return c.Tokens != nil || c.Cluster != nil }

// fileCertificate returns a function that gets certificates for projected volumes.
func fileCertificate(c func() *podcert.Requester) func(context.Context, state.Pod, corev1.PodCertificateProjection) (
	files.Credential, error) {
	return func(ctx context.Context, pod state.Pod, src corev1.PodCertificateProjection) (files.Credential, error) {
		c, err := c().Get(ctx, podcert.Request{Pod: pod, Source: src})
		return files.Credential{Key: c.Key, Chain: c.Chain, RenewAt: c.RenewAt}, err
	}
}

// fileToken returns a function that gets tokens for projected volumes.
func fileToken(tokens func() csiclient.TokenSource) func(context.Context, state.Pod, string, time.Duration) (string,
	time.Time, error) {
	return func(ctx context.Context, pod state.Pod, audience string, lifetime time.Duration) (string, time.Time, error) {
		r := csiclient.TokenRequest{Pod: pod, Audience: audience, Lifetime: lifetime}
		t, err := tokens().Token(ctx, r)
		if err != nil {
			return "", time.Time{}, err
		}
		return t.Value, r.RenewAt(t), nil
	}
}
