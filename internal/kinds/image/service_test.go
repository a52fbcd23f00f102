package image_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image"
)

// service has the images that it pulled; every pull succeeds unless fails is set.
type service struct {
	has, pulls []string
	fails      error
}

func (s *service) Present(_ context.Context, reference string) (string, error) {
	if slices.Contains(s.has, reference) {
		return "id", nil
	}
	return "", nil
}

func (s *service) Pull(_ context.Context, reference string) (string, error) {
	if s.fails != nil {
		return "", s.fails
	}
	s.pulls, s.has = append(s.pulls, reference), append(s.has, reference)
	return "id", nil
}

func (n *node) with(s image.Service) {
	n.driver = image.New(image.Config{Layout: n.layout, Kernel: mount.New(n.layout.Root), Dirs: []string{n.images.Dir}, Service: s})
}

// The pull policy says when the runtime pulls an image that no layout has. An image in
// a layout is on this node under every policy.
//
// Items: M13.
func TestPullPolicy(t *testing.T) {
	const tagged, latest = "registry.example.com/a:v1", "registry.example.com/a:latest"
	for _, c := range []struct {
		reference, policy string
		present           bool
		pulls             []string
		err               error
	}{
		{tagged, "", false, []string{tagged}, nil},
		{tagged, "", true, nil, nil},
		{latest, "", true, []string{latest}, nil},
		{"registry.example.com/a", "", true, []string{latest}, nil},
		{tagged, "IfNotPresent", true, nil, nil},
		{latest, "IfNotPresent", true, nil, nil},
		{tagged, "Always", true, []string{tagged}, nil},
		{tagged, "Never", true, nil, nil},
		{tagged, "Never", false, nil, image.ErrNever},
		{name, "Always", false, nil, nil},
	} {
		n := newNode(t)
		n.small()
		s := &service{}
		if c.present {
			s.has = []string{tagged, latest}
		}
		n.with(s)
		v := n.volume(pod, c.reference)
		v.Spec.Config = fmt.Appendf(nil, `{"reference": %q, "pullPolicy": %q}`, c.reference, c.policy)
		if err := n.driver.Publish(t.Context(), v, pod); !errors.Is(err, c.err) || !slices.Equal(s.pulls, c.pulls) {
			t.Errorf("%+v: got %v, pulled %q", c, err, s.pulls)
		}
		if reference, byRuntime, err := n.driver.Runtime(pod, "data"); err != nil || byRuntime != (c.reference != name && c.err == nil) || byRuntime && reference != tagged && reference != latest {
			t.Errorf("%+v: the runtime is to mount %q, %v, %v", c, reference, byRuntime, err)
		}
		n.unpublish(pod)
	}
}

// The volume that stands for an image of the runtime is empty and read-only. It stays
// while the service is away, and is removed with its record.
func TestImageOfTheRuntime(t *testing.T) {
	n := newNode(t)
	s := &service{fails: errors.New("away")}
	n.with(s)
	v := n.volume(pod, "registry.example.com/a:v1")
	if err := n.driver.Publish(t.Context(), v, pod); !errors.Is(err, s.fails) {
		t.Errorf("away: got %v", err)
	}
	s.fails = nil
	dir := n.publish(pod, "registry.example.com/a:v1")
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("got %v, %v", left, err)
	}
	if err := os.WriteFile(dir+"/file", nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("write: got %v", err)
	}
	s.fails, s.has = errors.New("away"), nil
	n.publish(pod, "registry.example.com/a:v1")
	n.unpublish(pod)
	if _, byRuntime, err := n.driver.Runtime(pod, "data"); byRuntime || err != nil {
		t.Errorf("remembered: %v, %v", byRuntime, err)
	}
	if left, err := os.ReadDir(n.layout.Pods()); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
