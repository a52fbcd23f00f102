// Package fakecri is a container runtime in memory: the part of the Container
// Runtime Interface that lists sandboxes and containers, on a unix socket.
package fakecri

import (
	"context"
	"net"
	"os"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime is a container runtime. Its methods may be called by any goroutine.
type Runtime struct {
	runtimev1.UnimplementedRuntimeServiceServer
	t    *testing.T
	path string

	mu         sync.Mutex // guards the fields below
	server     *grpc.Server
	sandboxes  map[string]*runtimev1.PodSandbox
	containers map[string]*runtimev1.Container
	refuses    bool
	lists      int
	registry   map[string]string // ids by reference
	pulls      []string
}

// New serves an empty runtime on the socket at path, until the test ends.
func New(t *testing.T, path string) *Runtime {
	t.Helper()
	r := &Runtime{t: t, path: path, sandboxes: map[string]*runtimev1.PodSandbox{}, containers: map[string]*runtimev1.Container{}, registry: map[string]string{}}
	r.Start()
	t.Cleanup(r.Stop)
	return r
}

// Endpoint returns the runtime's endpoint.
func (r *Runtime) Endpoint() string { return "unix://" + r.path }

// Start serves again after Stop.
func (r *Runtime) Start() {
	r.t.Helper()
	if err := os.RemoveAll(r.path); err != nil {
		r.t.Fatal(err)
	}
	l, err := net.Listen("unix", r.path)
	if err != nil {
		r.t.Fatal(err)
	}
	s := grpc.NewServer()
	runtimev1.RegisterRuntimeServiceServer(s, r)
	runtimev1.RegisterImageServiceServer(s, images{r: r})
	r.mu.Lock()
	r.server = s
	r.mu.Unlock()
	go func() { _ = s.Serve(l) }() // until Stop
}

// Stop ends the server, as a runtime that crashed; its containers stay.
func (r *Runtime) Stop() {
	r.mu.Lock()
	s := r.server
	r.mu.Unlock()
	s.Stop()
}

// Refuse makes every list fail, or ends that.
func (r *Runtime) Refuse(refuses bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuses = refuses
}

// Sandbox sets the state of a pod's sandbox, whose id is "sandbox-" and the pod's UID.
func (r *Runtime) Sandbox(uid string, state runtimev1.PodSandboxState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := "sandbox-" + uid
	r.sandboxes[id] = &runtimev1.PodSandbox{Id: id, Metadata: &runtimev1.PodSandboxMetadata{Uid: uid}, State: state}
}

// Container sets the state of a container in the pod's sandbox.
func (r *Runtime) Container(uid, name string, state runtimev1.ContainerState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := name + "-" + uid
	r.containers[id] = &runtimev1.Container{
		Id: id, PodSandboxId: "sandbox-" + uid, Metadata: &runtimev1.ContainerMetadata{Name: name}, State: state,
		Labels: map[string]string{"io.kubernetes.pod.uid": uid, "io.kubernetes.container.name": name},
	}
}

// Lists returns how often containers were listed.
func (r *Runtime) Lists() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lists
}

// ListPodSandbox implements runtimev1.RuntimeServiceServer.
func (r *Runtime) ListPodSandbox(context.Context, *runtimev1.ListPodSandboxRequest) (*runtimev1.ListPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuses {
		return nil, status.Error(codes.Internal, "the runtime is on fire")
	}
	var all []*runtimev1.PodSandbox
	for _, s := range r.sandboxes {
		all = append(all, s)
	}
	return &runtimev1.ListPodSandboxResponse{Items: all}, nil
}

// ListContainers implements runtimev1.RuntimeServiceServer.
func (r *Runtime) ListContainers(context.Context, *runtimev1.ListContainersRequest) (*runtimev1.ListContainersResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lists++
	if r.refuses {
		return nil, status.Error(codes.Internal, "the runtime is on fire")
	}
	var all []*runtimev1.Container
	for _, c := range r.containers {
		all = append(all, c)
	}
	return &runtimev1.ListContainersResponse{Containers: all}, nil
}
