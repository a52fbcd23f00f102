// Package podcert gets the certificates of pods for projected volumes with a source
// podCertificate: it makes a key, and a signer of the cluster issues a certificate for it.
//
// It owns the keys, which are only in memory and lost with the process, the
// PodCertificateRequests for them, and the time at which a certificate is renewed.
//
// It does not write a key or certificate anywhere, or decide when a volume is published
// again: a Credential says when it must be renewed and when it expires.
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

// ErrRefused means that the signer has denied a request or marked it as failed. It is not
// asked again for this pod.
var ErrRefused = errors.New("the signer refuses")

// Request asks for a certificate for a pod.
type Request struct {
	Pod state.Pod
	// Source names the signer, the type of key, and the lifetime.
	Source corev1.PodCertificateProjection
}

// key returns a string that is equal for requests that can share a certificate.
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
// Formatting or logging it never shows the key.
type Credential struct {
	// Key is a PEM block PRIVATE KEY (PKCS #8), a secret.
	Key []byte
	// Chain has the PEM blocks CERTIFICATE, the one for Key first.
	Chain []byte
	// RenewAt is when to ask again; Expires is when the certificate expires.
	RenewAt, Expires time.Time
}

// String describes the credential without its key.
func (c Credential) String() string {
	return "certificate that expires at " + c.Expires.UTC().Format(time.RFC3339)
}

// GoString implements fmt.GoStringer, for %#v.
func (c Credential) GoString() string { return c.String() }

// LogValue implements slog.LogValuer.
func (c Credential) LogValue() slog.Value { return slog.StringValue(c.String()) }

// maxSpread is the longest delay of a renewal after the time that the signer set, so that
// certificates that were issued together are not renewed together.
const maxSpread = 5 * time.Minute

// renewAt returns begin, delayed by a hash of who: by up to a tenth of the time between
// begin and expires, and at most maxSpread.
func renewAt(begin, expires time.Time, who string) time.Time {
	h := fnv.New32a()
	_, _ = h.Write([]byte(who)) // a hash's Write never fails
	spread := min(maxSpread, max(0, expires.Sub(begin)/10))
	return begin.Add(spread / 1000 * time.Duration(h.Sum32()%1000))
}
