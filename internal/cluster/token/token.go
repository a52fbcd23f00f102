// Package token provides service account tokens, for drivers that want them in publish
// requests and for projected volumes.
//
// It owns a cache of valid tokens, and an issuer for nodes without a cluster.
//
// It does not call an API server, decide when a volume is published again, or write a
// token anywhere. Its users declare the interface that they need.
package token

import (
	"errors"
	"fmt"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
)

// The lifetimes that Kubernetes allows, and its default (TokenRequest, spec.expirationSeconds).
const (
	MinLifetime     = 10 * time.Minute
	MaxLifetime     = (1<<32 - 1) * time.Second
	DefaultLifetime = time.Hour
)

// Check returns an error that names an invalid field of a request.
func Check(r csiclient.TokenRequest) error {
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
