package localdriver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/csi-volmgr/csi-volmgr/internal/host/unixsocket"
)

const (
	mib = int64(1) << 20
	gib = int64(1) << 30
)

// envChild tells this test binary that it runs in a mount namespace of its own.
// envServe makes it a driver that serves until it is killed.
const (
	envChild = "LOCALDRIVER_TEST_CHILD"
	envServe = "LOCALDRIVER_TEST_SERVE"
	envTool  = "LOCALDRIVER_TEST_TOOL" // a pipe that a tool of the driver holds open until it dies
)

func TestMain(m *testing.M) {
	switch {
	case os.Geteuid() != 0:
		fmt.Fprintln(os.Stderr, "FAIL: must run as root: these tests mount and attach loop devices")
		os.Exit(1)
	case os.Getenv(envServe) != "":
		os.Exit(serveUntilKilled(os.Getenv(envServe)))
	case os.Getenv(envTool) != "":
		fmt.Fprintln(os.Stderr, runTool(context.Background(), "sh", "-c", "exec 3>"+os.Getenv(envTool)+"; exec sleep 60"))
		os.Exit(1)
	case os.Getenv(envChild) == "":
		os.Exit(reexec())
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		fmt.Fprintln(os.Stderr, "make mounts private:", err)
		os.Exit(1)
	}
	unix.Umask(0o022)
	goleak.VerifyTestMain(m)
}

func reexec() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), envChild+"=1")
	if len(os.TempDir()) > 24 {
		cmd.Env = append(cmd.Env, "TMPDIR=/tmp") // a socket's address holds 107 bytes, and t.TempDir has the test's name
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// rig is a driver that serves on a socket, and its clients.
type rig struct {
	t   *testing.T
	ctx context.Context
	dir string      // holds everything
	log []io.Writer // get the driver's log, too, from the next start on
	d   *Driver
	csi.IdentityClient
	csi.ControllerClient
	csi.GroupControllerClient
	csi.NodeClient
	metadata csi.SnapshotMetadataClient
	stop     func()
}

// newRig starts a driver whose state is below a new directory, and checks at the end of the
// test that the driver has left no mount and no loop device.
func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, ctx: context.Background(), dir: t.TempDir()}
	t.Cleanup(func() {
		r.stop()
		checkNothingLeft(t, r.dir)
	})
	r.start()
	return r
}

// start starts the driver on the state that the one before has left.
func (r *rig) start() {
	r.t.Helper()
	d, err := New(Config{NodeID: "node-1", StateDir: r.path("state"), Roots: []string{r.dir}, Logger: r.logger()})
	if err != nil {
		r.t.Fatal(err)
	}
	r.d = d
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- d.Serve(ctx, "unix://"+r.path("csi.sock")) }()
	select {
	case <-d.serving:
	case err := <-served:
		r.t.Fatalf("serve: %v", err)
	}
	conn := r.connect()
	r.stop = func() {
		cancel()
		conn.Close()
		if err := errors.Join(<-served, d.Close()); err != nil {
			r.t.Errorf("stop driver: %v", err)
		}
		r.stop = func() {}
	}
}

func (r *rig) connect() *grpc.ClientConn {
	r.t.Helper()
	conn, err := grpc.NewClient("passthrough:///localhost", grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return unixsocket.Dial(ctx, r.path("csi.sock")) // the path may be too long for sun_path
	}), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			MinConnectTimeout: 10 * time.Second, // else a connection attempt gets only as long as the pause before it
			Backoff:           backoff.Config{BaseDelay: time.Millisecond, Multiplier: 1.6, MaxDelay: time.Second},
		}),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		r.t.Fatal(err)
	}
	r.IdentityClient, r.ControllerClient, r.NodeClient = csi.NewIdentityClient(conn), csi.NewControllerClient(conn), csi.NewNodeClient(conn)
	r.GroupControllerClient = csi.NewGroupControllerClient(conn)
	r.metadata = csi.NewSnapshotMetadataClient(conn)
	return conn
}

func (r *rig) restart() {
	r.t.Helper()
	r.stop()
	r.start()
}

func (r *rig) path(elem ...string) string {
	return filepath.Join(append([]string{r.dir}, elem...)...)
}

func (r *rig) logger() *slog.Logger {
	out := io.MultiWriter(append(r.log, r.t.Output())...)
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func checkNothingLeft(t *testing.T, dir string) {
	t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		if path := strings.Fields(line)[4]; strings.HasPrefix(path, dir+"/") {
			t.Errorf("left mounted: %s", line)
			unix.Unmount(path, unix.MNT_DETACH)
		}
	}
	backing, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range backing {
		if file, err := os.ReadFile(name); err == nil && strings.HasPrefix(string(file), dir+"/") {
			t.Errorf("left attached: %s %s", name, file)
			if dev, err := os.Open("/dev/" + filepath.Base(filepath.Dir(filepath.Dir(name)))); err == nil {
				unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_CLR_FD, 0)
				dev.Close()
			}
		}
	}
}

// fsCap and blockCap return volume capabilities.
func fsCap(fsType string, mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType}},
	}
}

func blockCap(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
	}
}

const multi = csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER

// vol is a volume of a rig, with the capability it is used with.
type vol struct {
	r   *rig
	id  string
	cap *csi.VolumeCapability
}

// create makes a volume; the end of the test deletes it, whatever state it is in.
func (r *rig) create(req *csi.CreateVolumeRequest) vol {
	r.t.Helper()
	resp, err := r.CreateVolume(r.ctx, req)
	if err != nil {
		r.t.Fatalf("CreateVolume %s: %v", req.GetName(), err)
	}
	v := vol{r: r, id: resp.GetVolume().GetVolumeId(), cap: req.GetVolumeCapabilities()[0]}
	r.t.Cleanup(v.remove)
	return v
}

func createReq(name string, bytes int64, c *csi.VolumeCapability) *csi.CreateVolumeRequest {
	return &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: bytes},
		VolumeCapabilities: []*csi.VolumeCapability{c},
	}
}

// directoryReq is createReq for type directory.
func directoryReq(name string) *csi.CreateVolumeRequest {
	req := createReq(name, gib, fsCap("", multi))
	req.Parameters = map[string]string{"type": "directory"}
	return req
}

func (v vol) staging() string { return v.r.path("staging-" + v.id) }

func (v vol) stageErr() error {
	if err := os.MkdirAll(v.staging(), 0o750); err != nil {
		return err
	}
	_, err := v.r.NodeStageVolume(v.r.ctx, &csi.NodeStageVolumeRequest{
		VolumeId: v.id, StagingTargetPath: v.staging(), VolumeCapability: v.cap,
	})
	return err
}

func (v vol) publishErr(target string, readonly bool) error {
	_, err := v.r.NodePublishVolume(v.r.ctx, &csi.NodePublishVolumeRequest{
		VolumeId: v.id, StagingTargetPath: v.staging(), TargetPath: target, VolumeCapability: v.cap, Readonly: readonly,
	})
	return err
}

func (v vol) unpublishErr(target string) error {
	_, err := v.r.NodeUnpublishVolume(v.r.ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: v.id, TargetPath: target})
	return err
}

func (v vol) unstageErr() error {
	_, err := v.r.NodeUnstageVolume(v.r.ctx, &csi.NodeUnstageVolumeRequest{VolumeId: v.id, StagingTargetPath: v.staging()})
	return err
}

// up stages and publishes the volume and returns the target.
func (v vol) up() string {
	v.r.t.Helper()
	target := v.r.path("target-" + v.id)
	if err := v.stageErr(); err != nil {
		v.r.t.Fatalf("NodeStageVolume: %v", err)
	}
	if err := v.publishErr(target, false); err != nil {
		v.r.t.Fatalf("NodePublishVolume: %v", err)
	}
	return target
}

// down unpublishes and unstages.
func (v vol) down() {
	v.r.t.Helper()
	if err := v.unpublishErr(v.r.path("target-" + v.id)); err != nil {
		v.r.t.Fatalf("NodeUnpublishVolume: %v", err)
	}
	if err := v.unstageErr(); err != nil {
		v.r.t.Fatalf("NodeUnstageVolume: %v", err)
	}
}

// remove takes the volume down from whatever state it is in, and deletes it.
func (v vol) remove() {
	v.r.t.Helper()
	if _, err := v.r.d.mustVolume(v.id); err != nil {
		return // deleted by the test
	}
	a := v.r.d.store.attachment(v.id)
	for target := range a.Targets {
		if err := v.unpublishErr(target); err != nil {
			v.r.t.Errorf("NodeUnpublishVolume %s: %v", target, err)
		}
	}
	if a.Stage != nil {
		if err := v.unstageErr(); err != nil {
			v.r.t.Errorf("NodeUnstageVolume: %v", err)
		}
	}
	if _, err := v.r.DeleteVolume(v.r.ctx, &csi.DeleteVolumeRequest{VolumeId: v.id}); err != nil {
		v.r.t.Errorf("DeleteVolume: %v", err)
	}
	if left, _ := filepath.Glob(v.r.path("state", "*", v.id+"*")); len(left) > 0 {
		v.r.t.Errorf("DeleteVolume left %q", left)
	}
}

// expand makes the volume larger at the controller.
func (v vol) expand(bytes int64) {
	v.r.t.Helper()
	resp, err := v.r.ControllerExpandVolume(v.r.ctx, &csi.ControllerExpandVolumeRequest{
		VolumeId: v.id, CapacityRange: &csi.CapacityRange{RequiredBytes: bytes},
	})
	if err != nil || resp.GetCapacityBytes() != bytes || !resp.GetNodeExpansionRequired() {
		v.r.t.Fatalf("ControllerExpandVolume to %d = %v, %v", bytes, resp, err)
	}
}

func (v vol) nodeExpandErr(path string) error {
	_, err := v.r.NodeExpandVolume(v.r.ctx, &csi.NodeExpandVolumeRequest{VolumeId: v.id, VolumePath: path})
	return err
}

// wantCode checks an answer's code.
func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%s = %v (%v), want %v", what, got, err, want)
	}
}

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func wantFile(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("read %s = %q, %v, want %q", path, got, err, want)
	}
}

func wantGone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there (%v)", path, err)
	}
}

// serveUntilKilled is the driver process of the tests that kill it.
func serveUntilKilled(dir string) int {
	d, err := New(Config{NodeID: "node-1", StateDir: filepath.Join(dir, "state"), Roots: []string{dir}})
	if err == nil {
		err = d.Serve(context.Background(), filepath.Join(dir, "csi.sock"))
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// freeze blocks every write to the file system mounted at path, as another program would.
func freeze(path string) error { return freezeIoctl(path, iocFreeze) }

// thaw ends a freeze. A file system that is not frozen stays as it is.
func thaw(path string) error {
	if err := freezeIoctl(path, iocThaw); !errors.Is(err, unix.EINVAL) {
		return err
	}
	return nil
}

func freezeIoctl(path string, request uint) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return ioctl(dir, request, nil)
}
