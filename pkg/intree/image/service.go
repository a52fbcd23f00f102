package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/disk"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/image/oci"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/poddir"
	"github.com/csi-volmgr/csi-volmgr/pkg/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// ErrNever means that an image is not on the node and is not to be got.
var ErrNever = errors.New("the image is not on this node, and its pullPolicy is Never")

// Service has the images of a container runtime. What it has only the runtime can
// mount, so that the node's part is to see to it that the image is there.
type Service interface {
	// Present returns what it calls the image of a reference, "" where it has none.
	Present(ctx context.Context, reference string) (id string, err error)
	// Pull gets the image.
	Pull(ctx context.Context, reference string) (id string, err error)
}

// note is what is remembered of a volume whose image the runtime has.
type note struct {
	// Reference is what the runtime is to mount.
	Reference string `json:"reference"`
	// ID is what it called the image then.
	ID string `json:"id"`
}

const noteName = "image.json"

// byService sees to it that the runtime has the image, and lets an empty
// read-only directory stand for the volume.
func (d *Driver) byService(ctx context.Context, v state.Volume, pod state.PodUID, w want) error {
	id, err := d.obtain(ctx, w)
	if err != nil {
		return err
	}
	b, err := json.Marshal(note{w.ref.String(), id})
	if err != nil {
		return err
	}
	scratch, err := poddir.Scratch(d.c.Layout, v, pod)
	if err != nil {
		return err
	}
	f, err := scratch.Make(coveredMode)
	if err != nil {
		return err
	}
	err = disk.WriteFile(filepath.Join(scratch.Path(), noteName), b)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if f, err = w.dir.Make(standInMode); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return d.c.Kernel.Bind(w.dir.Path(), w.dir.Path(), mount.BindOptions{
		ReadOnly: true, NoSuid: true, NoDev: true,
		NoExec: true,
	})
}

// obtain returns what the runtime calls the image, by the pull policy.
func (d *Driver) obtain(ctx context.Context, w want) (id string, err error) {
	reference := w.ref.String()
	if w.policy != corev1.PullAlways {
		if id, err = d.c.Service.Present(ctx, reference); err != nil || id != "" {
			return id, err
		}
	}
	if w.policy == corev1.PullNever {
		return "", ErrNever
	}
	return d.c.Service.Pull(ctx, reference)
}

// policyOf is the kubelet's default: Always for the tag latest, which moves.
func policyOf(policy corev1.PullPolicy, ref oci.Reference) corev1.PullPolicy {
	switch {
	case policy != "":
		return policy
	case ref.Digest == "" && ref.Tag == oci.Latest:
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// Runtime returns the reference of the image that the container runtime is to
// mount for a pod's volume; ok is false where the volume's directory has the
// image itself.
func (d *Driver) Runtime(pod state.PodUID, name string) (reference string, ok bool, err error) {
	scratch, err := poddir.Scratch(d.c.Layout, state.Volume{Spec: &state.Spec{Driver: Kind, Name: name}}, pod)
	if err != nil {
		return "", false, err
	}
	b, err := os.ReadFile(filepath.Join(scratch.Path(), noteName))
	if errors.Is(err, os.ErrNotExist) {
		return "", false, nil
	}
	var n note
	if err == nil {
		err = json.Unmarshal(b, &n)
	}
	if err != nil {
		return "", false, fmt.Errorf("what is remembered of image volume %s: %w", name, err)
	}
	return n.Reference, true, nil
}
