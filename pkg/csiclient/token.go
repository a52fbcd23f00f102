package csiclient

import (
	"context"
	"hash/fnv"
	"log/slog"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// maxAge is the age at which a token is renewed even if it is valid for longer, as in the kubelet.
const maxAge = 24 * time.Hour

// TokenSource returns service account tokens: new ones, or cached ones that are still
// valid. It is called concurrently and must honour ctx.
type TokenSource interface {
	Token(ctx context.Context, r TokenRequest) (Token, error)
}

// TokenRequest asks for a token of a pod's service account that is bound to the pod, so that
// it becomes invalid when the pod is deleted. It is comparable.
type TokenRequest struct {
	Pod state.Pod
	// Audience names the service that accepts the token; "" leaves it to the issuer.
	Audience string
	// Lifetime is how long the token should be valid; 0 leaves it to the issuer,
	// which may choose another in any case: the token's Expires counts.
	Lifetime time.Duration
}

// RenewAt returns when t, a token of this request, must be renewed: after four fifths of
// its lifetime or a day, whichever is shorter. A hash of r subtracts up to a tenth of
// that, so that tokens that were issued together are not renewed together.
func (r TokenRequest) RenewAt(t Token) time.Time {
	wait := min(t.Expires.Sub(t.Issued)/5*4, maxAge)
	if wait <= 0 || t.Issued.IsZero() {
		return t.Expires
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(string(r.Pod.UID) + "\x00" + r.Audience)) // a hash's Write never fails
	return t.Issued.Add(wait - wait/1000*time.Duration(h.Sum32()%100))
}

// Token is a service account token. Formatting or logging it never shows its value.
type Token struct {
	// Value is the token itself, a secret.
	Value string
	// Issued and Expires bound the token's validity.
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
