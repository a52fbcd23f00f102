// Package cri asks a container runtime whether containers of a pod still run, through the Container
// Runtime Interface (k8s.io/cri-api, runtime.v1).
//
// Owns: the connection to the runtime, when to ask it, and the texts about its answers.
//
// Does not: start, stop or change anything in the runtime, or decide about a volume (plan.Keep
// does).
//
// Invariants: the answer is "none runs" only after two complete lists that began after the question
// and contain no ready sandbox of the pod, and no container of it that has not exited. A container
// that was created but not started, or whose state the runtime does not know, counts as running. A
// runtime that does not answer proves nothing.
//
// The runtime is asked only while a question is open: immediately, and then every [Config.Every],
// because not every runtime reports the end of containers.
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
	// DefaultEvery is how often the runtime is asked while a question is open. The kubelet looks at
	// its containers equally often.
	DefaultEvery = time.Second
	// answerTime limits the time for both lists.
	answerTime = 10 * time.Second
	// reconnect is the longest pause before a runtime that was away is dialled again.
	reconnect = 3 * time.Second
	// maxAnswer limits a list in bytes, as the kubelet does.
	maxAnswer = 16 << 20
)

// Config configures a Runtime.
type Config struct {
	// Endpoint is the runtime's endpoint, such as unix:///run/containerd/containerd.sock.
	Endpoint string
	// Every is how often the runtime is asked while a question is open; 0 means DefaultEvery.
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

	mu        sync.Mutex // guards the fields below
	questions map[*question]struct{}
	problem   string
	changed   chan struct{}
}

// question is a question whose answer is not yet "none runs".
type question struct {
	pod    state.PodUID
	answer func(why string)
	said   string // the last answer; "" means none yet
}

// New returns a Runtime that neither connects nor asks until Run is called. An error means that the
// endpoint is invalid.
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

// Close closes the connection of a Runtime whose Run is never called; Run closes it itself.
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

// Run answers questions until ctx ends, which is not an error. Call it once.
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
		} else {
			r.note(nil) // no volume waits for the runtime, which is not asked again
		}
	}
}

func (r *Runtime) open() map[*question]struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.questions)
}

// answer answers the questions that were asked before the lists began.
func (r *Runtime) answer(open map[*question]struct{}, living map[state.PodUID]string, err error) {
	for q := range open {
		why := living[q.pod]
		if err != nil {
			why = "cannot tell whether containers of the pod still run: " + err.Error()
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

// note sets the problem to the error of asking the runtime; nil clears it.
func (r *Runtime) note(err error) {
	text := ""
	if err != nil {
		text = err.Error() + "; until it answers, volumes of pods that have left stay mounted"
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

// Problem returns why the runtime does not answer, or "" if it does or was not asked.
func (r *Runtime) Problem() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.problem
}

// Endpoint returns the runtime's endpoint.
func (r *Runtime) Endpoint() string { return r.config.Endpoint }

// Changed returns a channel that is closed when Problem next changes. Call it before Problem.
func (r *Runtime) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// living returns, by pod, a text about a sandbox or container that still runs.
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
	// Sorted, so that the text names the same container every time.
	slices.SortFunc(all, func(a, b *runtimev1.Container) int { return cmp.Compare(b.GetId(), a.GetId()) })
	for _, c := range all {
		if c.GetState() == runtimev1.ContainerState_CONTAINER_EXITED {
			continue
		}
		uid := cmp.Or(pods[c.GetPodSandboxId()], state.PodUID(c.GetLabels()[labelUID]))
		name := cmp.Or(c.GetMetadata().GetName(), c.GetLabels()[labelName], "without a name")
		living[uid] = fmt.Sprintf("container %s (%s) of the pod %s", name, short(c.GetId()), stateText(c.GetState()))
	}
	return living, nil
}

// Labels of containers, set by the kubelet and by agents that run pods in the same way.
const (
	labelUID  = "io.kubernetes.pod.uid"
	labelName = "io.kubernetes.container.name"
)

func stateText(s runtimev1.ContainerState) string {
	switch s {
	case runtimev1.ContainerState_CONTAINER_RUNNING:
		return "still runs"
	case runtimev1.ContainerState_CONTAINER_CREATED:
		return "is created, and may be started"
	}
	return "is in a state that the runtime does not know"
}

// short returns an id in the length that the runtimes' own tools show.
func short(id string) string { return id[:min(len(id), 13)] }
