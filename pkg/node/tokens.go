package node

import (
	"context"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/pkg/token"
)

// issuesTokens reports whether there is somebody who issues service account tokens.
func (n *Node) issuesTokens() bool { return n.cfg.Tokens != nil || n.cfg.Cluster != nil }

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
