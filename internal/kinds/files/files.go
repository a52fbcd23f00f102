// Package files is the driver of the built-in kinds that show objects as files:
// configMap, secret, downwardAPI and projected. They differ in the content of the files
// (package content) and in where the files may be stored.
//
// Invariants: if anything fails, the last published content stays. A kind whose content
// may be secret writes only to a file system in memory, which is checked on the open
// directory immediately before writing.
package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/payload"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/poddir"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/content"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	// mode is the directory's mode: containers may read it, and only root writes.
	mode = 0o755
	// coveredMode is the mode of a mount point: if the mount is missing, no container's
	// user finds anything there.
	coveredMode = 0o700
)

// ErrNotInMemory means that a volume whose content may be secret is not on a file
// system in memory.
var ErrNotInMemory = errors.New("not a tmpfs")

// Config configures a Driver. All fields except Token, Certificate, Now and Logger are
// required.
type Config struct {
	Layout state.Layout
	Kernel *mount.Kernel
	Source Source
	// Token returns a token of the pod's service account and the time to renew it; nil
	// if tokens cannot be issued.
	Token func(ctx context.Context, pod state.Pod, audience string, lifetime time.Duration) (value string,
		renewAt time.Time, err error)
	// Certificate returns a certificate with its key for the pod; nil if there is no
	// cluster.
	Certificate func(ctx context.Context, pod state.Pod, src corev1.PodCertificateProjection) (Credential, error)
	// Now returns the time that names a set of files; nil means time.Now.
	Now func() time.Time
	// Logger may be nil: then nothing is logged.
	Logger *slog.Logger
}

// Credential is a private key and its certificate chain, in PEM, and the time to renew
// them.
type Credential struct {
	Key, Chain []byte
	RenewAt    time.Time
}

// Driver implements the volumes of one kind. It is safe for concurrent use.
type Driver struct {
	poddir.PublishOnly
	poddir.Remover
	c       Config
	writer  payload.Writer
	sweeper *sweeper
}

// New returns the driver for kind, which is one of Kinds.
func New(kind state.DriverName, c Config) *Driver {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Driver{
		PublishOnly: poddir.PublishOnly{Kind: kind}, Remover: poddir.Remover{Layout: c.Layout, Kernel: c.Kernel},
		c: c, writer: payload.Writer{Kernel: c.Kernel, Now: c.Now}, sweeper: newSweeper(),
	}
}

// Publish writes what the volume selects from the current objects, and returns
// when to repeat that because a token or certificate expires; the zero time means
// never. If the content is there already, nothing changes.
func (d *Driver) Publish(ctx context.Context, v state.Volume, pod state.PodUID) (renewAt time.Time, err error) {
	m, dir, err := poddir.Begin(ctx, d.c.Layout, v, pod)
	if err != nil {
		return time.Time{}, err
	}
	found, err := collect(d.Kind, *v.Spec, d.reader(ctx, m.Pod, &renewAt))
	if err != nil {
		err = fmt.Errorf("volume %s: %w", v.Spec.Name, err)
		if errors.Is(err, ErrConfig) {
			return time.Time{}, poddir.Refused("Publish", err)
		}
		return time.Time{}, err
	}
	if err := d.publish(ctx, v, m, dir, found); err != nil {
		return time.Time{}, err
	}
	return renewAt, nil
}

// publish writes the files to the volume's directory.
func (d *Driver) publish(ctx context.Context, v state.Volume, m state.Mount, dir poddir.Dir,
	found content.Files,
) error {
	own, err := d.c.Source.Pod(ctx, m.Pod.Namespace, m.Pod.Name)
	if err != nil {
		return fmt.Errorf("volume %s: get the pod: %w", v.Spec.Name, err)
	}
	set := payload.Set{Files: written(found), FSGroup: m.FSGroup}
	if own != nil {
		set.Dirs = nested(own, m.Names)
	}
	unlock, err := d.sweeper.locks.Lock(ctx, dir.Path())
	if err != nil {
		return err
	}
	defer unlock()
	f, err := d.open(ctx, dir)
	if err != nil {
		return err
	}
	defer f.Close()
	done, err := d.writer.Write(ctx, f, set)
	if err != nil {
		return fmt.Errorf("volume %s: write to %s: %w", v.Spec.Name, dir.Path(), err)
	}
	if done.Left > 0 {
		d.sweeper.schedule(dir.Path())
	}
	return nil
}

// Unpublish unmounts the volume's directory and removes it.
func (d *Driver) Unpublish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	dir, err := poddir.Of(d.c.Layout, v, pod)
	if err != nil {
		return poddir.Refused("Unpublish", err)
	}
	unlock, err := d.sweeper.locks.Lock(ctx, dir.Path())
	if err != nil {
		return err
	}
	defer unlock()
	if err := d.Remover.Unpublish(ctx, v, pod); err != nil {
		return err
	}
	d.sweeper.cancel(dir.Path())
	return nil
}

// nested returns the directories of the volume, which the pod uses under the given
// names, on which other volumes are mounted.
func nested(pod *corev1.Pod, names []string) []string {
	var dirs []string
	for _, name := range names {
		dirs = append(dirs, content.NestedMounts(pod, name)...)
	}
	return dirs
}

func written(found content.Files) payload.Files {
	files := make(payload.Files, len(found))
	for path, file := range found {
		files[path] = payload.File{Data: file.Data, Mode: fs.FileMode(file.Mode), Owner: file.Owner}
	}
	return files
}

// open opens the directory to write to, after making and mounting it if necessary.
func (d *Driver) open(ctx context.Context, dir poddir.Dir) (*os.File, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if k, _ := kind.Of(d.Kind); !k.Mounts {
		return dir.Make(mode)
	}
	made, err := dir.MakeNew(coveredMode)
	if err != nil {
		return nil, err
	}
	mounted := false
	if !made {
		seen, err := d.c.Kernel.Look(ctx, dir.Path())
		if err != nil {
			return nil, err
		}
		mounted = seen.Mounted
	}
	if !mounted {
		if err := d.c.Kernel.Tmpfs(dir.Path(), mount.TmpfsOptions{Mode: mode, NoSwap: true}); err != nil {
			return nil, err
		}
	}
	f, err := dir.Open()
	if err != nil {
		return nil, err
	}
	if err := inMemory(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func inMemory(f *os.File) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return &os.PathError{Op: "statfs", Path: f.Name(), Err: err}
	}
	if st.Type != unix.TMPFS_MAGIC {
		return fmt.Errorf("the file system at %s (type %#x): %w", f.Name(), st.Type, ErrNotInMemory)
	}
	return nil
}
