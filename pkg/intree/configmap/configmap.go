// Package configmap is the built-in kind configMap: the keys of a ConfigMap as
// files, which follow the ConfigMap without a reader ever seeing a mixture.
//
// Invariant: whatever fails, what was last published stays.
package configmap

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/payload"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/poddir"
	"github.com/csi-volmgr/csi-volmgr/pkg/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Kind is the name of this kind.
const Kind state.DriverName = "kubernetes.io/configmap"

// mode of the directory: containers get to read it, and only the writer writes.
const mode = 0o755

// Source is where ConfigMaps come from. One that is known not to exist is an
// error for which apierrors.IsNotFound holds; any other error means that it is
// not known, and changes nothing.
type Source interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
}

// Config of a Driver. All fields but Now are required.
type Config struct {
	Layout state.Layout
	Kernel *mount.Kernel
	Source Source
	// Now names what is written by its moment; nil means time.Now.
	Now func() time.Time
}

// Driver makes configMap volumes. It may be used by many goroutines.
type Driver struct {
	c      Config
	writer payload.Writer
}

// New returns a Driver.
func New(c Config) *Driver {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Driver{c: c, writer: payload.Writer{Kernel: c.Kernel, Now: c.Now}}
}

// Publish writes what the volume selects of its ConfigMap as it is now. Where
// that is there already, nothing changes.
func (d *Driver) Publish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	m, ok := v.Mounts[pod]
	if !ok {
		return refused("Publish", fmt.Errorf("the record has no mount for pod %s", pod))
	}
	dir, err := poddir.Of(d.c.Layout, v, pod)
	if err != nil {
		return refused("Publish", err)
	}
	src, err := decode(v.Spec)
	if err != nil {
		return refused("Publish", err)
	}
	files, err := d.files(ctx, m.Pod.Namespace, src)
	if err != nil {
		return fmt.Errorf("volume %s: %w", v.Spec.Name, err)
	}
	f, err := dir.Make(mode)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := d.writer.Write(ctx, f, files, m.FSGroup); err != nil {
		return fmt.Errorf("volume %s: write configmap %s/%s to %s: %w", v.Spec.Name, m.Pod.Namespace, src.Name, dir.Path(), err)
	}
	return nil
}

// files returns what src selects of the ConfigMap that it names.
func (d *Driver) files(ctx context.Context, namespace string, src corev1.ConfigMapVolumeSource) (payload.Files, error) {
	cm, err := d.c.Source.ConfigMap(ctx, namespace, src.Name)
	if apierrors.IsNotFound(err) && optional(src) {
		cm, err = &corev1.ConfigMap{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get configmap %s/%s: %w", namespace, src.Name, err)
	}
	files, err := pick(cm, src)
	if err != nil {
		return nil, fmt.Errorf("configmap %s/%s: %w", namespace, src.Name, err)
	}
	return files, nil
}

// Unpublish removes the volume's directory.
func (d *Driver) Unpublish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	dir, err := poddir.Of(d.c.Layout, v, pod)
	if err != nil {
		return refused("Unpublish", err)
	}
	return dir.Remove(ctx, d.c.Kernel)
}

// Stage fails: the kind has no such step.
func (d *Driver) Stage(context.Context, state.Volume) error { return noStep("Stage") }

// Unstage fails: the kind has no such step.
func (d *Driver) Unstage(context.Context, state.Volume) error { return noStep("Unstage") }

// Expand fails: the kind has no such step.
func (d *Driver) Expand(context.Context, state.Volume, state.PodUID, int64) (int64, error) {
	return 0, noStep("Expand")
}

func noStep(call string) error {
	return &state.CallError{Outcome: state.Final, Call: call, Err: errors.New(string(Kind) + " has no such step")}
}

func refused(call string, err error) error {
	return &state.CallError{Outcome: state.Refused, Call: call, Err: err}
}
