// Package cri asks a container runtime whether containers of a pod live, over the
// Container Runtime Interface (k8s.io/cri-api, runtime.v1).
//
// Owns: the connection to the runtime, when it is asked, and the words for what it
// says.
//
// Does not: start, stop or change anything of the runtime's, nor decide about a
// volume (plan.Keep does).
//
// Invariants: "none lives" is said only after two complete lists, begun after the
// question, without a sandbox of the pod that is ready and without a container of
// it that has not exited: a container that is made and not started, or whose state
// the runtime does not know, lives. A runtime that does not answer proves nothing.
//
// The runtime is asked only while a caller has a question open: at once, then every
// [Config.Every], since not every runtime tells of containers that end.
//
// Concurrency: Run owns the connection; the other methods may be called at any time.
package cri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	// DefaultEvery is how often the runtime is asked while a question is open, as
	// the kubelet's own look at its containers.
	DefaultEvery = time.Second
	// answerTime is how long one list may take.
	answerTime = 10 * time.Second
	// reconnect is how long at most a runtime that was away is not dialled.
	reconnect = 3 * time.Second
	// maxAnswer bounds one list (bytes), as the kubelet does.
	maxAnswer = 16 << 20
)

// Config is what a Runtime needs.
type Config struct {
	// Endpoint is the runtime's, as unix:///run/containerd/containerd.sock.
	Endpoint string
	// Every is how often it is asked while a question is open; 0 means DefaultEvery.
	Every time.Duration
	// Logger may be nil.
	Logger *slog.Logger
}

// Runtime is a container runtime. See the package comment.
type Runtime struct {
	config  Config
	conn    *grpc.ClientConn
	service runtimev1.RuntimeServiceClient
	poke    chan struct{} // capacity 1: there is a new question

	mu        sync.Mutex // guards what follows
	questions map[*question]struct{}
	problem   string
	changed   chan struct{}
}

// question is one that was asked and has not been answered by "none".
type question struct {
	pod    state.PodUID
	answer func(why string)
	said   string // last; "" is nothing yet
}

// New returns a Runtime that asks nothing until Run; nothing is connected before
// that. The error says what is wrong with the endpoint.
func New(c Config) (*Runtime, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Every = cmp.Or(c.Every, DefaultEvery)
	pauses := backoff.DefaultConfig
	pauses.MaxDelay = reconnect
	conn, err := grpc.NewClient(c.Endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: pauses, MinConnectTimeout: answerTime}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, fmt.Errorf("container runtime %s: %w", c.Endpoint, err)
	}
	return &Runtime{
		config: c, conn: conn, service: runtimev1.NewRuntimeServiceClient(conn), poke: make(chan struct{}, 1),
		questions: map[*question]struct{}{}, changed: make(chan struct{}),
	}, nil
}

// Close gives up the connection, for a Runtime that is not run. Run does so itself.
func (r *Runtime) Close() error { return r.conn.Close() }

// Ask implements [manager.Containers].
func (r *Runtime) Ask(pod state.PodUID, answer func(why string)) (forget func()) {
	q := &question{pod: pod, answer: answer}
	r.mu.Lock()
	r.questions[q] = struct{}{}
	r.mu.Unlock()
	select {
	case r.poke <- struct{}{}:
	default:
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.questions, q)
	}
}

// Run answers questions until ctx ends, which is no error. It is to be called once.
func (r *Runtime) Run(ctx context.Context) error {
	defer r.conn.Close()
	timer := time.NewTimer(0)
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case <-r.poke:
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
		if open := r.open(); len(open) > 0 {
			living, err := r.living(ctx)
			if ctx.Err() != nil {
				return nil
			}
			r.note(err)
			r.answer(open, living, err)
		}
		timer.Stop()
		if len(r.open()) > 0 {
			timer.Reset(r.config.Every)
		}
	}
}

func (r *Runtime) open() map[*question]struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.questions)
}

// answer tells those who asked before the lists were begun.
func (r *Runtime) answer(open map[*question]struct{}, living map[state.PodUID]string, err error) {
	for q := range open {
		why := living[q.pod]
		if err != nil {
			why = "it is not known whether containers of the pod live: " + err.Error()
		}
		r.mu.Lock()
		_, still := r.questions[q]
		if why == "" {
			delete(r.questions, q)
		}
		r.mu.Unlock()
		if still && (why == "" || q.said != why) {
			q.said = why
			q.answer(why)
		}
	}
}

// note shows what asking the runtime failed of, nil for nothing.
func (r *Runtime) note(err error) {
	text := ""
	if err != nil {
		text = err.Error() + "; nothing is removed from pods that have left until it answers"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.problem == text {
		return
	}
	if text != "" {
		r.config.Logger.Warn("container runtime does not answer", "err", err)
	}
	r.problem = text
	close(r.changed)
	r.changed = make(chan struct{})
}

// Problem says why the runtime does not answer; "" where it does, or was not asked.
func (r *Runtime) Problem() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.problem
}

// Endpoint is where the runtime is asked.
func (r *Runtime) Endpoint() string { return r.config.Endpoint }

// Changed returns a channel that is closed when Problem next changes. Call it before Problem.
func (r *Runtime) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// living says, by pod, of what the pod lives.
func (r *Runtime) living(ctx context.Context) (map[state.PodUID]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, errors.New("no answer in "+answerTime.String()))
	defer cancel()
	living := map[state.PodUID]string{}
	pods := map[string]state.PodUID{} // by sandbox
	sandboxes, err := r.service.ListPodSandbox(ctx, &runtimev1.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("list the sandboxes of container runtime %s: %w", r.config.Endpoint, err)
	}
	for _, s := range sandboxes.GetItems() {
		uid := state.PodUID(cmp.Or(s.GetMetadata().GetUid(), s.GetLabels()[labelUID]))
		pods[s.GetId()] = uid
		if s.GetState() == runtimev1.PodSandboxState_SANDBOX_READY {
			living[uid] = fmt.Sprintf("the pod's sandbox %s still runs, and may start containers", short(s.GetId()))
		}
	}
	containers, err := r.service.ListContainers(ctx, &runtimev1.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list the containers of container runtime %s: %w", r.config.Endpoint, err)
	}
	all := containers.GetContainers()
	// the same one is named every time
	slices.SortFunc(all, func(a, b *runtimev1.Container) int { return cmp.Compare(b.GetId(), a.GetId()) })
	for _, c := range all {
		if c.GetState() == runtimev1.ContainerState_CONTAINER_EXITED {
			continue
		}
		uid := cmp.Or(pods[c.GetPodSandboxId()], state.PodUID(c.GetLabels()[labelUID]))
		name := cmp.Or(c.GetMetadata().GetName(), c.GetLabels()[labelName], "without a name")
		living[uid] = fmt.Sprintf("container %s (%s) of the pod %s", name, short(c.GetId()), words(c.GetState()))
	}
	return living, nil
}

// Labels that the kubelet, and an agent that runs pods as it does, gives to containers.
const (
	labelUID  = "io.kubernetes.pod.uid"
	labelName = "io.kubernetes.container.name"
)

func words(s runtimev1.ContainerState) string {
	switch s {
	case runtimev1.ContainerState_CONTAINER_RUNNING:
		return "still runs"
	case runtimev1.ContainerState_CONTAINER_CREATED:
		return "is made, and may be started"
	}
	return "is in a state that the runtime does not know"
}

// short is an id as runtimes' own tools show it.
func short(id string) string { return id[:min(len(id), 13)] }
