// Package podcert is where the certificates of pods come from (projected volumes
// with a source podCertificate): a signer of the cluster issues them for a key
// that is made here.
//
// Owns: the keys, which are in memory only and go with the process; the
// PodCertificateRequests that are made for them; and when one is renewed.
//
// Does not: write a key or certificate anywhere, or decide when a volume is
// published again: a Credential says until when it is good.
package podcert

import (
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// ErrRefused means that the signer has denied a request, or failed to answer
// it: for this pod it is asked no more.
var ErrRefused = errors.New("the signer refuses")

// Request asks for a certificate for a pod.
type Request struct {
	Pod state.Pod
	// Source names the signer, the type of key, and the lifetime.
	Source corev1.PodCertificateProjection
}

// key is what makes two requests one.
func (r Request) key() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %q %q", r.Pod.UID, r.Source.SignerName, r.Source.KeyType)
	if s := r.Source.MaxExpirationSeconds; s != nil {
		fmt.Fprintf(&b, " %d", *s)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Source.UserAnnotations)) {
		fmt.Fprintf(&b, " %q=%q", name, r.Source.UserAnnotations[name])
	}
	return b.String()
}

// Credential is a private key and the certificates that a signer issued for it.
// What formats or logs it shows no key.
type Credential struct {
	// Key is a PRIVATE KEY block of PEM (PKCS #8), a secret.
	Key []byte
	// Chain are CERTIFICATE blocks of PEM, the key's own first.
	Chain []byte
	// RenewAt is when to ask again; Expires when the certificate ends.
	RenewAt, Expires time.Time
}

// String is for people: it never shows the key.
func (c Credential) String() string {
	return "certificate that expires at " + c.Expires.UTC().Format(time.RFC3339)
}

// GoString implements fmt.GoStringer, for %#v.
func (c Credential) GoString() string { return c.String() }

// LogValue implements slog.LogValuer.
func (c Credential) LogValue() slog.Value { return slog.StringValue(c.String()) }

// maxSpread is how much later than its signer says a certificate is renewed at
// most, so that those that were issued together are not renewed together.
const maxSpread = 5 * time.Minute

// renewAt spreads what is renewed at a moment, by who asks alone, over a tenth of
// the time that is left then, and no more than maxSpread.
func renewAt(begin, expires time.Time, who string) time.Time {
	h := fnv.New32a()
	_, _ = h.Write([]byte(who)) // a hash's Write never fails
	spread := min(maxSpread, max(0, expires.Sub(begin)/10))
	return begin.Add(spread / 1000 * time.Duration(h.Sum32()%1000))
}
