package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// answerTime is how long the runtime may take for a call that should be quick, and
	// pullTime for pulling an image.
	answerTime = 2 * time.Minute
	pullTime   = 15 * time.Minute
	// maxAnswer bounds one answer (bytes), as the kubelet does.
	maxAnswer = 16 << 20
)

// containerRuntime is the container runtime with the sandboxes and containers that this
// node's agent made.
type containerRuntime struct {
	node, logs string
	name       string // the runtime's, for container ids; known after the first healthy
	conn       *grpc.ClientConn
	runtime    runtimev1.RuntimeServiceClient
	images     runtimev1.ImageServiceClient
}

func connect(endpoint, node, logs string) (*containerRuntime, error) {
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, fmt.Errorf("container runtime %s: %w", endpoint, err)
	}
	return &containerRuntime{
		node: node, logs: logs, name: "containerd", conn: conn,
		runtime: runtimev1.NewRuntimeServiceClient(conn), images: runtimev1.NewImageServiceClient(conn),
	}, nil
}

// Close closes the connection.
func (r *containerRuntime) Close() { _ = r.conn.Close() }

// healthy returns why no container can run, or nil.
func (r *containerRuntime) healthy(ctx context.Context) error {
	s, err := r.runtime.Status(ctx, &runtimev1.StatusRequest{})
	if err != nil {
		return fmt.Errorf("container runtime: %w", err)
	}
	for _, c := range s.GetStatus().GetConditions() {
		if c.GetType() == runtimev1.RuntimeReady && !c.GetStatus() {
			return fmt.Errorf("container runtime: %s: %s", c.GetReason(), c.GetMessage())
		}
	}
	return nil // a missing network does not matter: this agent's pods use the host's
}

// mountOptions reports whether the runtime gives mounts noexec, nodev and nosuid.
func (r *containerRuntime) mountOptions(ctx context.Context) (bool, error) {
	s, err := r.runtime.Status(ctx, &runtimev1.StatusRequest{})
	if err != nil {
		return false, fmt.Errorf("container runtime: %w", err)
	}
	return s.GetFeatures().GetMountOptions(), nil
}

// list returns the sandboxes and containers that this node's agent made: for one pod, or with "" for all.
func (r *containerRuntime) list(ctx context.Context, uid types.UID) ([]*runtimev1.PodSandbox, []*runtimev1.Container, error) {
	labels := map[string]string{labelNode: r.node}
	if uid != "" {
		labels[labelUID] = string(uid)
	}
	inBoxes := &runtimev1.PodSandboxFilter{LabelSelector: labels}
	boxes, err := r.runtime.ListPodSandbox(ctx, &runtimev1.ListPodSandboxRequest{Filter: inBoxes})
	if err != nil {
		return nil, nil, fmt.Errorf("list sandboxes: %w", err)
	}
	inRuns := &runtimev1.ContainerFilter{LabelSelector: labels}
	runs, err := r.runtime.ListContainers(ctx, &runtimev1.ListContainersRequest{Filter: inRuns})
	if err != nil {
		return nil, nil, fmt.Errorf("list containers: %w", err)
	}
	return boxes.GetItems(), runs.GetContainers(), nil
}

// glance returns a text for each pod that changes whenever one of its sandboxes or containers does.
func (r *containerRuntime) glance(ctx context.Context) (map[types.UID]string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	boxes, runs, err := r.list(ctx, "")
	if err != nil {
		return nil, err
	}
	lines := map[types.UID][]string{}
	for _, b := range boxes {
		uid := types.UID(b.GetLabels()[labelUID])
		lines[uid] = append(lines[uid], b.GetId()+b.GetState().String())
	}
	for _, c := range runs {
		uid := types.UID(c.GetLabels()[labelUID])
		lines[uid] = append(lines[uid], c.GetId()+c.GetState().String())
	}
	out := map[types.UID]string{}
	for uid, l := range lines {
		slices.Sort(l)
		out[uid] = fmt.Sprint(l)
	}
	return out, nil
}

// look returns the sandboxes and containers of one pod.
func (r *containerRuntime) look(ctx context.Context, uid types.UID) (s seen, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	boxes, runs, err := r.list(ctx, uid)
	if err != nil {
		return s, err
	}
	for _, b := range boxes {
		ready := b.GetState() == runtimev1.PodSandboxState_SANDBOX_READY
		s.sandboxes = append(s.sandboxes, sandbox{id: b.GetId(), attempt: b.GetMetadata().GetAttempt(), ready: ready})
	}
	slices.SortFunc(s.sandboxes, func(a, b sandbox) int { return cmp.Compare(b.attempt, a.attempt) })
	for _, c := range runs {
		full, err := r.runtime.ContainerStatus(ctx, &runtimev1.ContainerStatusRequest{ContainerId: c.GetId()})
		if status.Code(err) == codes.NotFound {
			continue // gone since the list
		}
		if err != nil {
			return s, fmt.Errorf("status of container %s: %w", c.GetId(), err)
		}
		s.containers = append(s.containers, runOf(c.GetPodSandboxId(), full.GetStatus()))
	}
	slices.SortFunc(s.containers, func(a, b container) int { return cmp.Compare(b.attempt, a.attempt) })
	return s, nil
}

func runOf(box string, c *runtimev1.ContainerStatus) container {
	quick, _ := strconv.Atoi(c.GetAnnotations()[annQuick])
	return container{
		id: c.GetId(), name: c.GetMetadata().GetName(), sandbox: box, attempt: c.GetMetadata().GetAttempt(), quick: quick,
		state: c.GetState(), exitCode: c.GetExitCode(), reason: c.GetReason(), message: c.GetMessage(), imageID: c.GetImageRef(),
		started: time.Unix(0, c.GetStartedAt()), finished: time.Unix(0, c.GetFinishedAt()),
	}
}

// makeSandbox makes and starts a sandbox.
func (r *containerRuntime) makeSandbox(ctx context.Context, c *runtimev1.PodSandboxConfig) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if err := os.MkdirAll(c.GetLogDirectory(), 0o750); err != nil {
		return err
	}
	_, err := r.runtime.RunPodSandbox(ctx, &runtimev1.RunPodSandboxRequest{Config: c})
	return err
}

// run makes a container and starts it.
func (r *containerRuntime) run(ctx context.Context, box string, in *runtimev1.PodSandboxConfig, c *runtimev1.ContainerConfig) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if err := os.MkdirAll(filepath.Join(in.GetLogDirectory(), c.GetMetadata().GetName()), 0o750); err != nil {
		return err
	}
	made, err := r.runtime.CreateContainer(ctx, &runtimev1.CreateContainerRequest{PodSandboxId: box, Config: c, SandboxConfig: in})
	if err != nil {
		return fmt.Errorf("create container %s: %w", c.GetMetadata().GetName(), err)
	}
	if _, err := r.runtime.StartContainer(ctx, &runtimev1.StartContainerRequest{ContainerId: made.GetContainerId()}); err != nil {
		return fmt.Errorf("start container %s: %w", c.GetMetadata().GetName(), err)
	}
	return nil
}

// image returns an image's name at the runtime, and pulls it if the policy says so.
func (r *containerRuntime) image(ctx context.Context, c *corev1.Container) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, pullTime)
	defer cancel()
	spec := &runtimev1.ImageSpec{Image: c.Image}
	if c.ImagePullPolicy != corev1.PullAlways {
		have, err := r.images.ImageStatus(ctx, &runtimev1.ImageStatusRequest{Image: spec})
		if err != nil || have.GetImage() != nil {
			return have.GetImage().GetId(), err
		}
		if c.ImagePullPolicy == corev1.PullNever {
			return "", fmt.Errorf("image %s is not here, and imagePullPolicy is Never", c.Image)
		}
	}
	pulled, err := r.images.PullImage(ctx, &runtimev1.PullImageRequest{Image: spec})
	if err != nil {
		return "", fmt.Errorf("pull image %s: %w", c.Image, err)
	}
	return pulled.GetImageRef(), nil
}

// stop ends the pod's containers, all at once, within the grace period, then its sandboxes.
func (r *containerRuntime) stop(ctx context.Context, has seen, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, grace+answerTime)
	defer cancel()
	ended := make(chan error)
	asked := 0
	for _, c := range has.containers {
		if c.exited() {
			continue
		}
		asked++
		go func() {
			this := &runtimev1.StopContainerRequest{ContainerId: c.id, Timeout: int64(grace.Round(time.Second).Seconds())}
			_, err := r.runtime.StopContainer(ctx, this)
			ended <- err
		}()
	}
	var errs []error
	for range asked {
		errs = append(errs, <-ended)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop containers: %w", err)
	}
	for _, b := range has.sandboxes {
		if _, err := r.runtime.StopPodSandbox(ctx, &runtimev1.StopPodSandboxRequest{PodSandboxId: b.id}); err != nil {
			return fmt.Errorf("stop sandbox %s: %w", b.id, err)
		}
	}
	return nil
}

// removeSandbox removes a sandbox and its containers, which have ended.
func (r *containerRuntime) removeSandbox(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	_, err := r.runtime.RemovePodSandbox(ctx, &runtimev1.RemovePodSandboxRequest{PodSandboxId: id})
	return err
}

// removeContainer removes a container.
func (r *containerRuntime) removeContainer(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	_, err := r.runtime.RemoveContainer(ctx, &runtimev1.RemoveContainerRequest{ContainerId: id})
	return err
}
