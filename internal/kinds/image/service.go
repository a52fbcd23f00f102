package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/disk"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image/oci"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/poddir"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// ErrNever means that an image is not on the node and must not be pulled.
var ErrNever = errors.New("the image is not on this node, and its pullPolicy is Never")

// Service is a container runtime's image service. Only the runtime can mount its
// images, so csi-volmgr only makes sure that the image is there.
type Service interface {
	// Present returns the service's ID of the image, or "" if the image is not there.
	Present(ctx context.Context, reference string) (id string, err error)
	// Pull pulls the image and returns the service's ID of it.
	Pull(ctx context.Context, reference string) (id string, err error)
}

// note records, for a volume with an image of the runtime, what to mount.
type note struct {
	// Reference is the image that the runtime must mount.
	Reference string `json:"reference"`
	// ID is the runtime's ID of the image when the volume was published.
	ID string `json:"id"`
}

const noteName = "image.json"

// publishByService makes sure that the runtime has the image, and mounts an empty
// read-only directory that represents the volume.
func (d *Driver) publishByService(ctx context.Context, v state.Volume, pod state.PodUID, w want) error {
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
	if _, err := scratch.MakeNew(coveredMode); err != nil {
		return err
	}
	if err := disk.WriteFile(filepath.Join(scratch.Path(), noteName), b); err != nil {
		return err
	}
	if _, err := w.dir.MakeNew(standInMode); err != nil {
		return err
	}
	return d.c.Kernel.Bind(w.dir.Path(), w.dir.Path(), mount.BindOptions{
		ReadOnly: true, NoSuid: true, NoDev: true,
		NoExec: true,
	})
}

// obtain returns the runtime's ID of the image, after pulling it if the policy says so.
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

// policyOf applies the kubelet's default policy: Always for the tag latest, which may
// move, otherwise IfNotPresent.
func policyOf(policy corev1.PullPolicy, ref oci.Reference) corev1.PullPolicy {
	switch {
	case policy != "":
		return policy
	case ref.Digest == "" && ref.Tag == oci.Latest:
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// Runtime returns the reference of the image that the container runtime must mount for
// a pod's volume. ok is false if the volume's directory contains the image itself.
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
		return "", false, fmt.Errorf("read the note of image volume %s: %w", name, err)
	}
	return n.Reference, true, nil
}
