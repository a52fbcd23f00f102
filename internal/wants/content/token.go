package content

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// ErrNoIssuer means that nothing issues service account tokens on this node.
var ErrNoIssuer = errors.New("no issuer of service account tokens here: a Kubernetes cluster is one, or the key of " +
	"--token-signing-key")

// Lifetimes of tokens in seconds, as in an API server (TokenRequest, expirationSeconds).
const (
	minToken     = 600
	maxToken     = 1<<32 - 1
	defaultToken = 3600
	// tokenMode is the mode of a token's file if the pod defines its owner or group.
	tokenMode = 0o600
)

// token returns the file of a serviceAccountToken source.
func (r Reader) token(src corev1.ServiceAccountTokenProjection, d defaults) (Files, error) {
	if r.Token == nil {
		return nil, ErrNoIssuer
	}
	seconds := int64(defaultToken)
	if s := src.ExpirationSeconds; s != nil {
		seconds = *s
	}
	if seconds < minToken || seconds > maxToken {
		return nil, fmt.Errorf("expirationSeconds: found %d, want %d to %d", seconds, minToken, int64(maxToken))
	}
	file, err := r.ownedFile(d, src.User)
	if err != nil {
		return nil, err
	}
	if file.Data, err = r.Token(src.Audience, time.Duration(seconds)*time.Second); err != nil {
		return nil, err
	}
	files := Files{}
	if err := files.put(src.Path, file); err != nil {
		return nil, fmt.Errorf("path: %w", err)
	}
	return files, nil
}

// ownedFile returns an empty file for the pod. Its owner is the source's user, or else the volume's
// default user, or else the user that all containers run as. With an owner or an fsGroup the mode
// is tokenMode, whatever the volume's mode, as the kubelet does.
func (r Reader) ownedFile(d defaults, user *int64) (File, error) {
	if err := checkUser(user); err != nil {
		return File{}, fmt.Errorf("user: %w", err)
	}
	pod, err := r.Objects.Pod()
	if err != nil {
		return File{}, fmt.Errorf("get the pod: %w", err)
	}
	if pod == nil {
		return File{}, fmt.Errorf("the pod: %w", ErrNotFound)
	}
	file := File{Mode: d.mode, Owner: cmp.Or(user, d.user, onlyUser(pod))}
	if sc := pod.Spec.SecurityContext; file.Owner != nil || sc != nil && sc.FSGroup != nil {
		file.Mode = tokenMode
	}
	return file, nil
}

// onlyUser returns the user that the pod's spec sets for all containers, or nil if they differ or
// one has none.
func onlyUser(pod *corev1.Pod) *int64 {
	var all *int64
	same := true
	each := func(c *corev1.Container) {
		var uid *int64
		if sc := pod.Spec.SecurityContext; sc != nil {
			uid = sc.RunAsUser
		}
		if sc := c.SecurityContext; sc != nil && sc.RunAsUser != nil {
			uid = sc.RunAsUser
		}
		if uid == nil || all != nil && *all != *uid {
			same = false
		}
		all = uid
	}
	for i := range pod.Spec.InitContainers {
		each(&pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		each(&pod.Spec.Containers[i])
	}
	for _, e := range pod.Spec.EphemeralContainers {
		c := corev1.Container(e.EphemeralContainerCommon)
		each(&c)
	}
	if !same {
		return nil
	}
	return all
}
