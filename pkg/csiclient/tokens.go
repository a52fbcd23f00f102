package csiclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// tokensKey is the key under which Kubernetes passes the tokens of a pod's service
// account to drivers (KEP-2047, KEP-5538).
const tokensKey = "csi.storage.k8s.io/serviceAccount.tokens"

// tokens are the service account tokens in one request. The zero value means none.
type tokens struct {
	json    string
	renewAt time.Time
}

// tokensFor returns the tokens that the driver wants in a publish request, in
// Kubernetes' JSON: for each audience, a token and its expiry. As in the kubelet, a
// request for a block volume has none.
func (d *Driver) tokensFor(ctx context.Context, v state.Volume, m state.MountSpec) (tokens, error) {
	if len(m.Renewal.Tokens) == 0 || v.Spec.Mode == state.Block {
		return tokens{}, nil
	}
	if d.tokens == nil {
		return tokens{}, errors.New("the driver wants service account tokens (CSIDriver spec.tokenRequests), and " +
			"this node has no issuer of tokens")
	}
	type status struct {
		Token   string    `json:"token"`
		Expires time.Time `json:"expirationTimestamp"`
	}
	var all tokens
	by := map[string]status{}
	for _, want := range m.Renewal.Tokens {
		r := TokenRequest{Pod: m.Pod, Audience: want.Audience, Lifetime: want.Lifetime}
		t, err := d.tokens.Token(ctx, r)
		if err != nil {
			return tokens{}, fmt.Errorf("for audience %q: %w", want.Audience, err)
		}
		by[want.Audience] = status{t.Value, t.Expires.UTC().Truncate(time.Second)}
		if at := r.RenewAt(t); all.renewAt.IsZero() || at.Before(all.renewAt) {
			all.renewAt = at
		}
	}
	b, err := json.Marshal(by)
	if err != nil {
		return tokens{}, err
	}
	all.json = string(b)
	return all, nil
}

// addTo adds the tokens to the secrets or the volume context, as the driver wants. It
// replaces the map instead of modifying it.
func (t tokens) addTo(req *csi.NodePublishVolumeRequest, inSecrets bool) {
	if t.json == "" {
		return
	}
	add := map[string]string{tokensKey: t.json}
	if inSecrets {
		req.Secrets = merge(req.Secrets, add)
	} else {
		req.VolumeContext = merge(req.VolumeContext, add)
	}
}
