package localdriver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/csi-volmgr/csi-volmgr/internal/host/filelock"
	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/host/unixsocket"
)

// DefaultName is the driver's name if Config has none.
const DefaultName = "local.csi-volmgr.dev"

// stopGrace is how long calls in flight may continue after Serve is stopped. It is longer than an
// mkfs takes; the CO repeats a call that is cut off.
const stopGrace = 10 * time.Second

// Config configures a driver.
type Config struct {
	// Name is the driver's CSI name; "" means DefaultName.
	Name string
	// NodeID identifies this node to the CO and in the topology. It must not be empty.
	NodeID string
	// StateDir is the directory for records and data. New creates it. Only one driver can use it at
	// a time.
	StateDir string
	// Roots are the directories that contain staging and target paths. A path to a root may contain
	// symbolic links; a path below it may not.
	Roots []string
	// Helpers grow mounted file systems (an [*isolate.Pool] with [Helper] in its service). Nil means that this
	// process does, which cannot end then while one is frozen.
	Helpers isolate.Doer
	// Logger is where the driver logs; nil discards.
	Logger *slog.Logger
}

// Driver serves five CSI services. Its methods are safe for concurrent use.
type Driver struct {
	name    string
	nodeID  string
	dir     string
	log     *slog.Logger
	store   *store
	locks   *locks
	mounts  *mount.Kernel
	helpers isolate.Doer
	lock    *os.File // holds the flock on the state directory

	// markServing closes serving once the CSI socket answers.
	serving     chan struct{}
	markServing func()

	// maxFreeze is the constant maxFreeze, except in tests.
	maxFreeze time.Duration

	// space serializes reservations of space, so that no space is reserved twice.
	space sync.Mutex
}

// New opens the state directory. It starts nothing. Close releases the directory.
func New(c Config) (*Driver, error) {
	if c.Name == "" {
		c.Name = DefaultName
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.NodeID == "" {
		return nil, errors.New("local driver: the node id is empty")
	}
	dir, err := filepath.Abs(c.StateDir)
	if err != nil {
		return nil, fmt.Errorf("local driver: state directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("local driver: make state directory: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, fmt.Errorf("local driver: %w", err)
	}
	d := &Driver{
		name: c.Name, nodeID: c.NodeID, dir: dir, log: c.Logger.With("driver", c.Name),
		locks: newLocks(), mounts: mount.New(append([]string{dir}, c.Roots...)...), lock: lock, maxFreeze: maxFreeze,
		helpers: c.Helpers,
	}
	d.serving = make(chan struct{})
	d.markServing = sync.OnceFunc(func() { close(d.serving) })
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err == nil {
		d.store, err = openStore(dir, strings.TrimSpace(string(boot)), d.log)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("local driver: %w", err), lock.Close())
	}
	return d, nil
}

// Close releases the state directory. Volumes remain as they are.
func (d *Driver) Close() error { return d.lock.Close() }

// lockDir locks dir against other drivers.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := filelock.Take(f); errors.Is(err, filelock.ErrHeld) {
		return nil, fmt.Errorf("state directory %s is in use by another driver", dir)
	} else if err != nil {
		return nil, err
	}
	return f, nil
}

// thawAll thaws the file systems that copies left frozen: those of a killed driver, or of calls that this
// driver does not wait for. If one cannot be thawed, its record remains and the others are not affected.
func (d *Driver) thawAll(ctx context.Context) {
	for _, a := range d.store.attachments() {
		if !a.Frozen {
			continue
		}
		if err := d.thawLeftover(ctx, a); err != nil {
			d.log.Error("file system that a copy left frozen stays frozen", "volume", a.ID, "err", err)
		} else {
			d.log.Info("thawed a file system that a copy left frozen", "volume", a.ID)
		}
	}
}

// Serve answers CSI calls on endpoint ("unix:///path" or a path) until ctx ends, and then waits for
// the calls in flight. Only the owner may open the socket. Serve begins by thawing file systems that a
// killed driver left frozen, and ends by thawing those that calls still keep frozen.
func (d *Driver) Serve(ctx context.Context, endpoint string) error {
	path, err := unixsocket.EndpointPath(endpoint)
	if err != nil {
		return fmt.Errorf("local driver: %w", err)
	}
	d.thawAll(ctx)
	defer d.thawAll(context.WithoutCancel(ctx))
	l, err := listen(ctx, path)
	if err != nil {
		return fmt.Errorf("local driver: %w", err)
	}
	srv := grpc.NewServer(grpc.UnaryInterceptor(d.intercept), grpc.StreamInterceptor(d.interceptStream))
	csi.RegisterIdentityServer(srv, &identityServer{driver: d})
	csi.RegisterControllerServer(srv, &controllerServer{driver: d})
	csi.RegisterGroupControllerServer(srv, &groupServer{driver: d})
	csi.RegisterNodeServer(srv, &nodeServer{driver: d})
	csi.RegisterSnapshotMetadataServer(srv, &metadataServer{driver: d})
	d.markServing()
	d.log.Info("local driver serving", "endpoint", path)
	return serve(ctx, srv, l)
}

// serve runs srv on l until ctx ends, then stops it and waits for it.
func serve(ctx context.Context, srv *grpc.Server, l *listener) error {
	defer l.remove()
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	hard := time.AfterFunc(stopGrace, srv.Stop)
	defer hard.Stop()
	srv.GracefulStop()
	if err := <-failed; !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// intercept gives every error its code and logs each call once, without the request, which may
// contain secrets.
func (d *Driver) intercept(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	start := time.Now()
	resp, err := handler(ctx, req)
	err = toStatus(err)
	log := d.log.With("op", filepath.Base(info.FullMethod), "took", time.Since(start))
	if v, ok := req.(interface{ GetVolumeId() string }); ok {
		log = log.With("volume", v.GetVolumeId())
	}
	if err != nil {
		log.Info("call refused", "err", err)
		return nil, err
	}
	log.Debug("call served")
	return resp, nil
}

// interceptStream does the same for a streaming call.
func (d *Driver) interceptStream(
	srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	start := time.Now()
	err := toStatus(handler(srv, stream))
	log := d.log.With("op", filepath.Base(info.FullMethod), "took", time.Since(start))
	if err != nil {
		log.Info("call refused", "err", err)
		return err
	}
	log.Debug("call served")
	return nil
}
