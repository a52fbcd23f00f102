package csiclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/pkg/token"
)

// tokensKey is the key under which Kubernetes gives drivers the tokens of a
// pod's service account (KEP-2047, KEP-5538).
const tokensKey = "csi.storage.k8s.io/serviceAccount.tokens"

// TokenSource makes service account tokens, anew or such as are good yet.
type TokenSource interface {
	Token(ctx context.Context, r token.Request) (token.Token, error)
}

// tokens are what goes with one call. The zero value is none.
type tokens struct {
	json    string
	renewAt time.Time
}

// tokensFor returns the tokens that the driver wants with a publish call, as
// the JSON that Kubernetes gives: by audience, a token and when it expires. As
// the kubelet has it, none goes with a block volume.
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
		r := token.Request{Pod: m.Pod, Audience: want.Audience, Lifetime: want.Lifetime}
		t, err := d.tokens.Token(ctx, r)
		if err != nil {
			return tokens{}, fmt.Errorf("for audience %q: %w", want.Audience, err)
		}
		by[want.Audience] = status{t.Value, t.Expires.UTC().Truncate(time.Second)}
		if at := token.RenewAt(r, t); all.renewAt.IsZero() || at.Before(all.renewAt) {
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

// addTo puts the tokens where the driver wants them. Neither map is the
// record's or the secret's own.
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
