// Package token is where service account tokens come from: those that drivers
// get with a publish call, and those of projected volumes.
//
// Owns: what a token request is, when a token has to be renewed, a cache of
// tokens that are good yet, and an issuer for nodes without a cluster.
//
// Does not: speak to an API server, decide when a volume is published again, or
// write a token anywhere. Its users declare the interface by which they ask.
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

// The lifetimes that Kubernetes allows and gives (TokenRequest, spec.expirationSeconds).
const (
	MinLifetime     = 10 * time.Minute
	MaxLifetime     = (1<<32 - 1) * time.Second
	DefaultLifetime = time.Hour
)

// maxAge is how old a token gets at most, whatever its lifetime: the kubelet's.
const maxAge = 24 * time.Hour

// Request asks for a token of a pod's service account, bound to the pod, so
// that it is good no longer than the pod is there. It is comparable.
type Request struct {
	Pod state.Pod
	// Audience is who shall accept the token; "" leaves it to the issuer.
	Audience string
	// Lifetime is how long it shall be good; 0 means DefaultLifetime. The issuer
	// may decide otherwise: what counts is the token's Expires.
	Lifetime time.Duration
}

// Check says which field is not as it must be.
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

// Token is one token. What formats or logs it shows no value.
type Token struct {
	// Value is the token itself, a secret.
	Value string
	// Issued and Expires bound the time in which it is good. A Cache fills in
	// Issued where the issuer does not say.
	Issued, Expires time.Time
}

// String is for people: it never shows the value.
func (t Token) String() string {
	return "token that expires at " + t.Expires.UTC().Format(time.RFC3339)
}

// GoString implements fmt.GoStringer, for %#v.
func (t Token) GoString() string { return t.String() }

// LogValue implements slog.LogValuer.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// Issuer makes tokens: a cluster's TokenRequest, or a Signer. It is called by
// many goroutines, and must honour ctx.
type Issuer interface {
	Token(ctx context.Context, r Request) (Token, error)
}

// RenewAt returns when t, which was made for r, is to be replaced: after four
// fifths of its life or a day, whichever is less, and up to a tenth of that
// earlier, depending on r alone, so that what was issued together is not
// renewed together.
func RenewAt(r Request, t Token) time.Time {
	wait := min(t.Expires.Sub(t.Issued)/5*4, maxAge)
	if wait <= 0 || t.Issued.IsZero() {
		return t.Expires
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(string(r.Pod.UID) + "\x00" + r.Audience)) // a hash's Write never fails
	return t.Issued.Add(wait - wait/1000*time.Duration(h.Sum32()%100))
}
