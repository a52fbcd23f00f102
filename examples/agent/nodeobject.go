package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const (
	// leaseTime is how long the lease is valid, renewEvery how often it is renewed: the
	// kubelet's values. Kubernetes treats a Node without a valid lease as dead.
	leaseTime  = 40 * time.Second
	renewEvery = 10 * time.Second
	// statusEvery is how often an unchanged status of the Node is written.
	statusEvery = 5 * time.Minute
)

// nodeObject maintains the Node and its lease. In the Node's status it patches only its
// own fields: csi-volmgr maintains status.volumesInUse in the same object.
type nodeObject struct {
	client   kubernetes.Interface
	name, ip string
	labels   map[string]string
	taints   []corev1.Taint
	capacity corev1.ResourceList
	healthy  func(context.Context) error

	written time.Time
	last    corev1.NodeCondition
}

func newNodeObject(client kubernetes.Interface, o options) (*nodeObject, error) {
	labels, err := pairs(o.labels)
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	labels[corev1.LabelHostname] = cmp.Or(labels[corev1.LabelHostname], o.name, host)
	labels[corev1.LabelOSStable], labels[corev1.LabelArchStable] = runtime.GOOS, runtime.GOARCH
	marks, err := taints(o.registration)
	if err != nil {
		return nil, err
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return nil, fmt.Errorf("how much memory there is: %w", err)
	}
	return &nodeObject{client: client, name: o.name, ip: o.ip, labels: labels, taints: marks, capacity: corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(int64(info.Totalram)*int64(info.Unit), resource.BinarySI),
		corev1.ResourcePods:   *resource.NewQuantity(o.pods, resource.DecimalSI),
	}}, nil
}

// register makes the Node, or sets the labels of an existing one.
func (n *nodeObject) register(ctx context.Context) error {
	o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: n.labels}, Spec: corev1.NodeSpec{Taints: n.taints}}
	_, err := n.client.CoreV1().Nodes().Create(ctx, o, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": n.labels}})
	if err != nil {
		return err
	}
	return n.patch(ctx, patch)
}

// patch changes the fields of the Node that are in the patch.
func (n *nodeObject) patch(ctx context.Context, patch []byte, sub ...string) error {
	nodes := n.client.CoreV1().Nodes()
	_, err := nodes.Patch(ctx, n.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, sub...)
	return err
}

// run renews the lease and the status until ctx ends.
func (n *nodeObject) run(ctx context.Context) error {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		n.renew(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// renew writes the lease and the status when they are due; a failed write is due again.
func (n *nodeObject) renew(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, renewEvery)
	defer cancel()
	now := time.Now()
	ready := n.ready(n.healthy(ctx), now)
	if err := n.renewLease(ctx, now); err != nil {
		slog.Warn("renew the node's lease", "err", err)
	}
	if ready.Status == n.last.Status && ready.Message == n.last.Message && now.Sub(n.written) < statusEvery {
		return
	}
	patch, err := json.Marshal(map[string]any{"status": n.status(ready)})
	if err == nil {
		err = n.patch(ctx, patch, "status")
	}
	if err != nil {
		slog.Warn("write the node's status", "err", err)
		return
	}
	n.written, n.last = now, ready
}

// ready returns the Node's condition that says whether pods can run here.
func (n *nodeObject) ready(unhealthy error, now time.Time) corev1.NodeCondition {
	c := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "AgentReady", Message: "pods are run",
		LastHeartbeatTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(now),
	}
	if unhealthy != nil {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, "AgentNotReady", unhealthy.Error()
	}
	if n.last.Status == c.Status {
		c.LastTransitionTime = n.last.LastTransitionTime
	}
	return c
}

// status returns a patch of the Node's status: lists are merged by type, and fields that
// are not named stay.
func (n *nodeObject) status(ready corev1.NodeCondition) map[string]any {
	var uts unix.Utsname
	_ = unix.Uname(&uts) // which never fails
	return map[string]any{
		"conditions": []corev1.NodeCondition{ready},
		"addresses": []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: n.ip}, {Type: corev1.NodeHostName, Address: n.name},
		},
		"capacity": n.capacity, "allocatable": n.capacity,
		"nodeInfo": map[string]string{
			"operatingSystem": runtime.GOOS, "architecture": runtime.GOARCH, "kernelVersion": unix.ByteSliceToString(uts.Release[:]),
		},
	}
}

// renewLease makes or renews the Node's lease.
func (n *nodeObject) renewLease(ctx context.Context, now time.Time) error {
	leases := n.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	seconds, at := int32(leaseTime/time.Second), metav1.NewMicroTime(now)
	lease, err := leases.Get(ctx, n.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		node, err := n.client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: n.name, OwnerReferences: []metav1.OwnerReference{ // it is deleted with the Node
				{APIVersion: "v1", Kind: "Node", Name: n.name, UID: node.UID},
			}},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &n.name, LeaseDurationSeconds: &seconds, RenewTime: &at},
		}, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &n.name, &seconds, &at
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}
