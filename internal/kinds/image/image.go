package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image/oci"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image/unpack"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/keylock"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/poddir"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Kind is the name of this kind.
const Kind = kind.Image

const (
	// coveredMode is the mode of a mount point.
	coveredMode = 0o700
	// standInMode is the mode of the directory that represents an image of the
	// container runtime.
	standInMode = 0o755
)

// ErrPolicy means that a volume's pull policy is not valid.
var ErrPolicy = errors.New("want Always, IfNotPresent or Never")

// Config configures a Driver. Layout and Kernel are required.
type Config struct {
	Layout state.Layout
	Kernel *mount.Kernel
	// Dirs are the directories that contain layouts; see oci.Find.
	Dirs []string
	// Service has the images that are in no layout; nil means that there are none.
	Service Service
	// Away reads documents and unpacks layers in a helper ([Helper]), so that the
	// helper needs the memory for them. If nil, this process does it.
	Away isolate.Doer
}

// Driver implements image volumes. It is safe for concurrent use.
type Driver struct {
	poddir.PublishOnly
	c Config

	mu    sync.Mutex       // held while making or pruning directories of the store
	spent map[string]spent // by tree: failed attempts to unpack it; guarded by mu
	locks keylock.Locks    // by tree, held while making or removing it
}

// New returns a Driver.
func New(c Config) *Driver {
	if c.Away == nil {
		c.Away = inProcess{}
	}
	return &Driver{PublishOnly: poddir.PublishOnly{Kind: Kind}, c: c}
}

// Publish mounts the image at the pod's directory. If an image is mounted there
// already, it stays, even if its reference now leads to another image.
func (d *Driver) Publish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	_, dir, err := poddir.Begin(ctx, d.c.Layout, v, pod)
	if err != nil {
		return err
	}
	ref, policy, err := parse(*v.Spec)
	if err != nil {
		return poddir.Refused("Publish", fmt.Errorf("volume %s: %w", v.Spec.Name, err))
	}
	seen, err := d.c.Kernel.Look(ctx, dir.Path())
	if err != nil || seen.Mounted {
		return err
	}
	if err := d.publish(ctx, v, pod, want{ref, policy, dir}); err != nil {
		err = fmt.Errorf("volume %s: image %s: %w", v.Spec.Name, ref, err)
		if errors.Is(err, unpack.ErrLayer) || errors.Is(err, ErrSpent) {
			return poddir.Refused("Publish", err)
		}
		return err
	}
	return nil
}

// parse reads the reference and the pull policy in a volume's spec.
func parse(spec state.Spec) (ref oci.Reference, policy corev1.PullPolicy, err error) {
	var src corev1.ImageVolumeSource
	if err := json.Unmarshal(spec.Config, &src); err != nil {
		return ref, "", fmt.Errorf("image: %w", err)
	}
	if ref, err = oci.ParseReference(src.Reference); err != nil {
		return ref, "", fmt.Errorf("image.reference: %w", err)
	}
	switch src.PullPolicy {
	case "", corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever:
		return ref, policyOf(src.PullPolicy, ref), nil
	}
	return ref, "", fmt.Errorf("image.pullPolicy: found %.40q: %w", src.PullPolicy, ErrPolicy)
}

// want is a parsed source with the volume's directory.
type want struct {
	ref    oci.Reference
	policy corev1.PullPolicy
	dir    poddir.Dir
}

func (d *Driver) publish(ctx context.Context, v state.Volume, pod state.PodUID, w want) error {
	if err := d.removeNote(ctx, v, pod); err != nil {
		return err
	}
	found, err := d.find(ctx, w.ref)
	if errors.Is(err, oci.ErrNotFound) && d.c.Service != nil {
		return d.publishByService(ctx, v, pod, w)
	}
	if err != nil {
		return err
	}
	content, err := d.ensure(ctx, found, mark(pod, v.Spec.Name))
	if err != nil {
		return err
	}
	if _, err := w.dir.MakeNew(coveredMode); err != nil {
		return err
	}
	return d.c.Kernel.Bind(content, w.dir.Path(), mount.BindOptions{
		ReadOnly: true, NoSuid: true, NoDev: true,
		NoExec: true,
	})
}

// Unpublish unmounts the volume, and removes the image's tree if no other volume uses
// it.
func (d *Driver) Unpublish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	dir, err := poddir.Of(d.c.Layout, v, pod)
	if err != nil {
		return poddir.Refused("Unpublish", err)
	}
	if err := dir.Remove(ctx, d.c.Kernel); err != nil {
		return err
	}
	if err := d.removeNote(ctx, v, pod); err != nil {
		return err
	}
	return d.releaseTrees(ctx, mark(pod, v.Spec.Name))
}

// removeNote removes the note about the volume.
func (d *Driver) removeNote(ctx context.Context, v state.Volume, pod state.PodUID) error {
	scratch, err := poddir.Scratch(d.c.Layout, v, pod)
	if err != nil {
		return poddir.Refused("Publish", err)
	}
	return scratch.Clear(ctx, d.c.Kernel)
}
