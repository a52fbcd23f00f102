// Package token provides service account tokens, for drivers that want them in publish
// requests and for projected volumes.
//
// It owns the token request, the time at which a token must be renewed, a cache of valid
// tokens, and an issuer for nodes without a cluster.
//
// It does not call an API server, decide when a volume is published again, or write a
// token anywhere. Its users declare the interface that they need.
package token

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The lifetimes that Kubernetes allows, and its default (TokenRequest, spec.expirationSeconds).
const (
	MinLifetime     = 10 * time.Minute
	MaxLifetime     = (1<<32 - 1) * time.Second
	DefaultLifetime = time.Hour
)

// maxAge is the age at which a token is renewed even if it is valid for longer, as in the kubelet.
const maxAge = 24 * time.Hour

// Request asks for a token of a pod's service account that is bound to the pod, so that
// it becomes invalid when the pod is deleted. It is comparable.
type Request struct {
	Pod state.Pod
	// Audience names the service that accepts the token; "" leaves it to the issuer.
	Audience string
	// Lifetime is how long the token should be valid; 0 means DefaultLifetime. The issuer
	// may choose another: the token's Expires counts.
	Lifetime time.Duration
}

// Check returns an error that names an invalid field.
func (r Request) Check() error {
	switch {
	case r.Pod.UID == "" || r.Pod.Namespace == "" || r.Pod.Name == "":
		return errors.New("token request: pod: found one without uid, namespace or name, want all three")
	case r.Pod.ServiceAccount == "":
		return fmt.Errorf("token request for pod %s/%s: service account: found none, want its name", r.Pod.Namespace,
			r.Pod.Name)
	case r.Lifetime != 0 && (r.Lifetime < MinLifetime || r.Lifetime > MaxLifetime):
		return fmt.Errorf("token request for pod %s/%s: lifetime: found %v, want %v to %v",
			r.Pod.Namespace, r.Pod.Name, r.Lifetime, MinLifetime, MaxLifetime)
	}
	return nil
}

// Token is a service account token. Formatting or logging it never shows its value.
type Token struct {
	// Value is the token itself, a secret.
	Value string
	// Issued and Expires bound the token's validity. A Cache sets Issued if the issuer
	// does not.
	Issued, Expires time.Time
}

// String describes the token without its value.
func (t Token) String() string {
	return "token that expires at " + t.Expires.UTC().Format(time.RFC3339)
}

// GoString implements fmt.GoStringer, for %#v.
func (t Token) GoString() string { return t.String() }

// LogValue implements slog.LogValuer.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// Issuer issues tokens: a cluster's TokenRequest, or a Signer. It is called concurrently
// and must honour ctx.
type Issuer interface {
	Token(ctx context.Context, r Request) (Token, error)
}

// RenewAt returns when t, the token of request r, must be renewed: after four fifths of
// its lifetime or a day, whichever is shorter. A hash of r subtracts up to a tenth of
// that, so that tokens that were issued together are not renewed together.
func RenewAt(r Request, t Token) time.Time {
	wait := min(t.Expires.Sub(t.Issued)/5*4, maxAge)
	if wait <= 0 || t.Issued.IsZero() {
		return t.Expires
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(string(r.Pod.UID) + "\x00" + r.Audience)) // a hash's Write never fails
	return t.Issued.Add(wait - wait/1000*time.Duration(h.Sum32()%100))
}
