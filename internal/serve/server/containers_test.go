package server_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/google/go-cmp/cmp"
)

// runtimes answers for containers and remembers the request.
type runtimes struct {
	asked server.Container
	err   error
}

var someMounts = []server.ContainerMount{
	{Volume: "v", HostPath: "/r/v", ContainerPath: "/v", SubPath: "a", Propagation: "rslave", SELinuxRelabel: true, MountOptions: []string{"noexec"}, MapIDs: true},
	{Volume: "b", HostPath: "/r/b", ContainerPath: "/dev/x", Device: true, Permissions: "mrw"},
}

func (r *runtimes) ContainerMounts(_ context.Context, c server.Container) ([]server.ContainerMount, error) {
	r.asked = c
	return someMounts, r.err
}

func (r *runtimes) Whole(pod []server.Mount) []server.Mount {
	pod = slices.Clone(pod)
	for i := range pod {
		pod[i].Note = "as its containers ask"
	}
	return pod
}

func TestMountsOfAContainer(t *testing.T) {
	c, b, _ := serve(t, server.AllFine())
	r := &runtimes{}
	of := server.Container{Namespace: "default", Pod: "web", Name: "app", RecursiveReadOnly: true, MountOptions: true, UserNamespaces: true}
	if _, err := c.ContainerMounts(t.Context(), of); !errors.Is(err, server.ErrNotFound) {
		t.Errorf("a daemon that does not serve containers: %v", err)
	}
	b.Serve(r)
	got, err := c.ContainerMounts(t.Context(), of)
	if diff := cmp.Diff(someMounts, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if r.asked != of {
		t.Errorf("asked for %+v, want %+v", r.asked, of)
	}
	for _, bad := range []string{"", "..", "a/b", "A", "a b"} {
		of.Name = bad
		if _, err := c.ContainerMounts(t.Context(), of); err == nil {
			t.Errorf("container %q: got no error", bad)
		}
	}
	of.Name, r.err = "app", fmt.Errorf("%w: not mounted", server.ErrConflict)
	if _, err := c.ContainerMounts(t.Context(), of); !errors.Is(err, server.ErrConflict) {
		t.Errorf("not mounted: %v", err)
	}
}
