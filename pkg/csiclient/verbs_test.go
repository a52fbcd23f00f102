package csiclient

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// outcome returns the outcome in a verb's error.
func outcome(t *testing.T, err error) state.Outcome {
	t.Helper()
	e, ok := errors.AsType[*state.CallError](err)
	if !ok {
		t.Fatalf("%v is no CallError", err)
	}
	return e.Outcome
}

// there reports whether path exists.
func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// tmpfs mounts a tmpfs at path until the test ends.
func tmpfs(t *testing.T, path string) {
	t.Helper()
	must(t, unix.Mount("tmpfs", path, "tmpfs", 0, "size=1m"))
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) })
}

// Items: N-56, N-75.
func TestAVolumeComesAndGoesAndLeavesNothing(t *testing.T) {
	for _, mode := range []state.Mode{state.Filesystem, state.Block} {
		t.Run(string(mode), func(t *testing.T) {
			n := connect(t, newFake())
			v := n.volume(mode)
			for range 2 { // each verb twice: all are idempotent
				must(t, n.d.Stage(t.Context(), v))
			}
			must(t, publish(t.Context(), n.d, v, "pod-1"))
			must(t, publish(t.Context(), n.d, withPhase(v, state.Present), "pod-1"))
			if mode == state.Block {
				if to, err := os.Readlink(v.Mounts["pod-1"].DevicePath); err != nil || to != target(v) {
					t.Errorf("the pod's link is to %q, %v; want %q", to, err, target(v))
				}
			}
			for _, path := range []string{v.Spec.StagePath, filepath.Dir(target(v))} {
				fi, err := os.Stat(path)
				if err != nil || fi.Mode().Perm() != dirMode {
					t.Errorf("%s: %v, %v; want mode %o", path, fi.Mode(), err, dirMode)
				}
			}
			size, err := n.d.Expand(t.Context(), v, "pod-1", 2<<30)
			if err != nil || size != 2<<30 {
				t.Errorf("expand: %d, %v", size, err)
			}
			for range 2 {
				must(t, n.d.Unpublish(t.Context(), v, "pod-1"))
			}
			for range 2 {
				must(t, n.d.Unstage(t.Context(), v))
			}
			if left := n.tree(); !slices.Equal(left, []string{"plugins", "pods"}) {
				t.Errorf("left are %q", left)
			}
			if len(n.f.staged)+len(n.f.published) > 0 {
				t.Errorf("the driver still has %v %v", n.f.staged, n.f.published)
			}
		})
	}
}

func TestUnpublishKeepsWhatOthersHaveInTheSameDirectories(t *testing.T) {
	n := connect(t, newFake())
	v := n.volume(state.Filesystem)
	must(t, n.d.Stage(t.Context(), v))
	must(t, publish(t.Context(), n.d, v, "pod-1"))
	other := filepath.Join(n.layout.Root, "pods/pod-1/volumes/kubernetes.io~empty-dir/x")
	must(t, os.MkdirAll(other, 0o700))
	must(t, n.d.Unpublish(t.Context(), v, "pod-1"))
	if !there(other) || there(filepath.Dir(target(v))) {
		t.Errorf("left are %q", n.tree())
	}
}

// Items: N-78, N-94, O02.
func TestCallsNeedTheCapabilityForThem(t *testing.T) {
	f := newFake()
	f.caps = nil
	n := connect(t, f)
	v := n.volume(state.Filesystem)
	_, expand := n.d.Expand(t.Context(), v, "pod-1", 1)
	_, stats := n.d.Stats(t.Context(), v, "pod-1")
	for call, err := range map[string]error{
		nodeStage: n.d.Stage(t.Context(), v), nodeExpand: expand, nodeStats: stats,
	} {
		if outcome(t, err) != state.Final || f.calls(call) != 0 {
			t.Errorf("%s: %v after %d calls; want final and none", call, err, f.calls(call))
		}
	}
}

// A version that stages nothing replaced the driver: what the old one staged must not stay
// for ever.
// Items: C30.
func TestUnstageByADriverThatStagesNoMoreRemovesTheDirectory(t *testing.T) {
	f := newFake()
	f.caps = nil
	n := connect(t, f)
	v := n.volume(state.Filesystem)
	must(t, os.MkdirAll(v.Spec.StagePath, 0o700))
	must(t, n.d.Unstage(t.Context(), v))
	if f.calls(nodeUnstage) != 0 || there(v.Spec.StagePath) {
		t.Errorf("%d calls; left are %q", f.calls(nodeUnstage), n.tree())
	}
}

func TestAPodWithoutAMountInTheRecordIsRefused(t *testing.T) {
	n := connect(t, newFake())
	v := n.volume(state.Filesystem)
	for _, err := range []error{publish(t.Context(), n.d, v, "pod-2"), n.d.Unpublish(t.Context(), v, "pod-2")} {
		if outcome(t, err) != state.Refused {
			t.Errorf("%v, want refused", err)
		}
	}
}

// A path in a record that leads out of the root is refused, no matter who wrote it there:
// nothing is created at it, and no driver is asked to unmount it (C11, C26).
//
// Items: N-42.
// Attacks: C11, C26.
func TestPathsOutsideTheRootAreNeverTouched(t *testing.T) {
	n := connect(t, newFake())
	outside := t.TempDir()
	must(t, os.Symlink(outside, filepath.Join(n.layout.Root, "escape")))
	beneath := n.layout.Root + "/escape/a/b" // by its name alone
	for _, path := range []string{outside, filepath.Join(outside, "a/b"), n.layout.Root + "/../x/y", "relative/path", n.layout.Root, beneath} {
		v := n.volume(state.Filesystem)
		v.Spec.StagePath = path
		if err := n.d.Stage(t.Context(), v); err == nil {
			t.Errorf("staged at %s", path)
		}
		m := v.Mounts["pod-1"]
		m.Target = path
		v.Mounts["pod-1"] = m
		if err := publish(t.Context(), n.d, v, "pod-1"); err == nil {
			t.Errorf("published at %s", path)
		}
		if path == beneath {
			continue // a driver may have mounted at that name, so it is unmounted; nothing is removed through the link
		}
		if err := n.d.Unpublish(t.Context(), v, "pod-1"); outcome(t, err) != state.Refused {
			t.Errorf("unpublished at %s: %v", path, err)
		}
		if err := n.d.Unstage(t.Context(), v); outcome(t, err) != state.Refused {
			t.Errorf("unstaged at %s: %v", path, err)
		}
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("outside the root: %v, %v", left, err)
	}
	if n.f.calls(nodeStage)+n.f.calls(nodePublish)+n.f.calls(nodeUnpublish)+n.f.calls(nodeUnstage) > 0 {
		t.Errorf("the driver was called: %q", n.f.seen())
	}
}

// Items: N-56.
func TestStagingNeedsADirectory(t *testing.T) {
	n := connect(t, newFake())
	v := n.volume(state.Filesystem)
	must(t, os.MkdirAll(filepath.Dir(v.Spec.StagePath), 0o700))
	must(t, os.WriteFile(v.Spec.StagePath, nil, 0o600))
	if err := n.d.Stage(t.Context(), v); err == nil || !strings.Contains(err.Error(), "is not a directory") {
		t.Errorf("staged on a file: %v", err)
	}
}

func TestTheDevicesLinkReplacesAnOlderOneAndNothingElse(t *testing.T) {
	n := connect(t, newFake())
	v := n.volume(state.Block)
	link := v.Mounts["pod-1"].DevicePath
	must(t, os.MkdirAll(filepath.Dir(link), 0o700))
	must(t, os.Symlink("/dev/null", link))
	must(t, n.d.Stage(t.Context(), v))
	must(t, publish(t.Context(), n.d, v, "pod-1"))
	if to, _ := os.Readlink(link); to != target(v) {
		t.Errorf("link to %q", to)
	}
	must(t, os.Remove(link))
	must(t, os.WriteFile(link, []byte("not ours"), 0o600))
	if err := publish(t.Context(), n.d, withPhase(v, state.Present), "pod-1"); err == nil {
		t.Error("a file in the link's place was replaced")
	}
	must(t, n.d.Unpublish(t.Context(), v, "pod-1"))
	if !there(link) {
		t.Error("a file in the link's place was removed")
	}
}

// A driver that leaves a symbolic link at the target, to a directory that another pod uses, is told so. Its
// removal leaves that directory alone.
func TestASymbolicLinkAtTheTargetIsSaidToBeOne(t *testing.T) {
	for _, mode := range []state.Mode{state.Filesystem, state.Block} {
		f, others := newFake(), t.TempDir()
		f.links = others
		must(t, os.WriteFile(filepath.Join(others, "file"), nil, 0o600))
		n := connect(t, f)
		v := n.volume(mode)
		must(t, n.d.Stage(t.Context(), v))
		err := publish(t.Context(), n.d, v, "pod-1")
		found, ok := errors.AsType[*state.CallError](err)
		if !ok || found.Reason != state.NoEffect || found.Outcome != state.Failed || !strings.Contains(err.Error(), "symbolic link at "+target(v)) {
			t.Errorf("%v: %v", mode, err)
		}
		_ = n.d.Unpublish(t.Context(), v, "pod-1")
		if !there(filepath.Join(others, "file")) {
			t.Error("what the link leads to was removed")
		}
	}
}

// Items: F11, N-32, N-34, N-100.
func TestSecretsAreReadAnewForEachCallAndGoWhereTheyBelong(t *testing.T) {
	reads := map[state.SecretRef]int{}
	n := connect(t, newFake(), func(c *Config) {
		c.Secrets = secretFunc(func(ref state.SecretRef) (map[string]string, error) {
			reads[ref]++
			if ref.Name == "missing" {
				return nil, errors.New("not found")
			}
			return map[string]string{"for": ref.Name}, nil
		})
	})
	v := n.volume(state.Filesystem)
	v.Spec.StageRef, v.Spec.PublishRef, v.Spec.ExpandRef = ref("stage"), ref("publish"), ref("expand")
	var got []string
	n.f.after = func(_ context.Context, method string, req any) error {
		if r, ok := req.(interface{ GetSecrets() map[string]string }); ok && len(r.GetSecrets()) > 0 {
			got = append(got, method+" "+r.GetSecrets()["for"])
		}
		return nil
	}
	for range 2 {
		must(t, n.d.Stage(t.Context(), v))
	}
	must(t, publish(t.Context(), n.d, v, "pod-1"))
	_, err := n.d.Expand(t.Context(), v, "pod-1", 1)
	must(t, err)
	must(t, n.d.Unpublish(t.Context(), v, "pod-1"))
	want := []string{"NodeStageVolume stage", "NodeStageVolume stage", "NodePublishVolume publish", "NodeExpandVolume expand"}
	if !slices.Equal(got, want) || reads[ref("stage")] != 2 {
		t.Errorf("got %q after %v reads, want %q", got, reads, want)
	}
	v.Spec.StageRef = ref("missing")
	err = n.d.Stage(t.Context(), v)
	if outcome(t, err) != state.Failed || !strings.Contains(err.Error(), "ns/missing") {
		t.Errorf("a missing secret: %v", err)
	}
}

type secretFunc func(state.SecretRef) (map[string]string, error)

func (f secretFunc) Secret(_ context.Context, ref state.SecretRef) (map[string]string, error) {
	return f(ref)
}

func ref(name string) state.SecretRef { return state.SecretRef{Namespace: "ns", Name: name} }

// Items: N-25.
func TestEachCallHasItsDeadline(t *testing.T) {
	const short = 30 * time.Millisecond
	n := connect(t, newFake(), func(c *Config) {
		c.Deadlines = Deadlines{Stage: short, Publish: short, Unpublish: short, Unstage: short, Expand: short, Stats: short}
	})
	n.f.mu.Lock()
	end := t.Context().Done() // not the end of the call: at its deadline the fault's answer would sometimes come first
	n.f.fault = func(context.Context, string, any) error { <-end; return context.Canceled }
	n.f.mu.Unlock()
	v := n.volume(state.Filesystem)
	_, expand := n.d.Expand(t.Context(), v, "pod-1", 1)
	_, stats := n.d.Stats(t.Context(), v, "pod-1")
	for _, err := range []error{
		n.d.Stage(t.Context(), v), publish(t.Context(), n.d, v, "pod-1"), n.d.Unpublish(t.Context(), v, "pod-1"),
		n.d.Unstage(t.Context(), v), expand, stats,
	} {
		if e, _ := errors.AsType[*state.CallError](err); outcome(t, err) != state.Uncertain || e.Code != "DeadlineExceeded" || !e.Unanswered {
			t.Errorf("%v, want DeadlineExceeded, uncertain", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.d.Stage(ctx, v); outcome(t, err) != state.Uncertain {
		t.Errorf("cancelled: %v", err)
	}
}

// Items: N-23.
func TestARequestThatCSIForbidsIsNotSent(t *testing.T) {
	n := connect(t, newFake())
	v := n.volume(state.Filesystem)
	v.Spec.Context = map[string]string{"k": strings.Repeat("x", maxGiven)}
	err := n.d.Stage(t.Context(), v)
	if outcome(t, err) != state.Refused || !strings.Contains(err.Error(), "volume_context") || n.f.calls(nodeStage) > 0 {
		t.Errorf("%v after %d calls", err, n.f.calls(nodeStage))
	}
	// A secret is sent whole or not at all: one that is no text, or too long, is not cut.
	for name, secrets := range map[string]map[string]string{
		"binary": {"k": "\xff\xfe"}, "a key that is no text": {"\xff": "v"}, "much": {"k": strings.Repeat("x", maxGiven)},
	} {
		if err := checkLimits(&csi.NodeStageVolumeRequest{VolumeId: "v", StagingTargetPath: "/s", Secrets: secrets}); err == nil || strings.Contains(err.Error(), "xxx") {
			t.Errorf("a secret, %s: %v", name, err)
		}
	}
}

// Driver lessons are numbered as in doc.go.

// Items: N-68.
func TestDriverLesson1AnEmptyLeftoverIsGoneBeforeTheFirstPublish(t *testing.T) {
	n := connect(t, newFake())
	v := n.volume(state.Filesystem)
	must(t, n.d.Stage(t.Context(), v))
	must(t, os.MkdirAll(target(v), 0o700))
	must(t, publish(t.Context(), n.d, v, "pod-1")) // the fake driver complains about a target that exists
}

func TestDriverLesson3ADeadMountIsNoObstacle(t *testing.T) {
	n := connect(t, newFake())
	v := n.volume(state.Filesystem)
	must(t, os.MkdirAll(v.Spec.StagePath, 0o700))
	deadFUSE(t, v.Spec.StagePath)
	if _, err := os.Stat(v.Spec.StagePath); !errors.Is(err, unix.ENOTCONN) {
		t.Fatalf("stat of a dead mount: %v, want ENOTCONN", err)
	}
	var called []string
	n.f.on(nodeStage, func(any) error { called = append(called, nodeStage); return status.Error(codes.Internal, "x") })
	if err := n.d.Stage(t.Context(), v); len(called) == 0 {
		t.Errorf("the driver was not asked to mend it: %v", err)
	}
	must(t, n.d.Unstage(t.Context(), v))
	if !there(filepath.Dir(v.Spec.StagePath)) {
		t.Error("the mount's directory is gone")
	}

	must(t, os.MkdirAll(target(v), 0o700))
	deadFUSE(t, target(v))
	for call, verb := range map[string]func() error{
		nodePublish:   func() error { return publish(t.Context(), n.d, v, "pod-1") },
		nodeUnpublish: func() error { return n.d.Unpublish(t.Context(), v, "pod-1") },
	} {
		called = nil
		n.f.on(call, func(any) error { called = append(called, call); return status.Error(codes.Internal, "x") })
		if err := verb(); len(called) == 0 || outcome(t, err) != state.Failed {
			t.Errorf("%s: the driver was not asked: %v", call, err)
		}
	}
}

// deadFUSE mounts at path a FUSE file system whose daemon is gone.
func deadFUSE(t *testing.T, path string) {
	t.Helper()
	dev, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	must(t, err)
	must(t, unix.Mount("dead", path, "fuse", 0, "fd="+strconv.Itoa(int(dev.Fd()))+",rootmode=40000,user_id=0,group_id=0"))
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) })
	must(t, dev.Close())
}

// Items: C28.
// Faults: A022.
func TestDriverLesson4AFailedRenewalRemovesNothing(t *testing.T) {
	for _, mode := range []state.Mode{state.Filesystem, state.Block} {
		n := connect(t, newFake())
		v := n.volume(mode)
		must(t, n.d.Stage(t.Context(), v))
		must(t, publish(t.Context(), n.d, v, "pod-1"))
		before := n.tree()
		n.f.inject(nodePublish, status.Error(codes.Internal, "no token"))
		if err := publish(t.Context(), n.d, withPhase(v, state.Present), "pod-1"); err == nil {
			t.Fatal("the failure is lost")
		}
		if after := n.tree(); !slices.Equal(before, after) {
			t.Errorf("%s: before %q, after %q", mode, before, after)
		}
	}
}

// Items: N-75.
func TestDriverLessons5And11RemovingWhatIsNotThere(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		keep   bool // the driver leaves the target
		second bool // the second failure counts as done
	}{
		"INTERNAL every time":     {err: status.Error(codes.Internal, "no mount point specified"), second: true},
		"UNKNOWN every time":      {err: status.Error(codes.Unknown, "exit status 1"), second: true},
		"the target stays":        {err: status.Error(codes.Internal, "busy"), keep: true},
		"ABORTED: a call runs":    {err: status.Error(codes.Aborted, "pending")},
		"UNAVAILABLE: who knows":  {err: status.Error(codes.Unavailable, "later")},
		"FAILED_PRECONDITION too": {err: status.Error(codes.FailedPrecondition, "in use")},
	} {
		t.Run(name, func(t *testing.T) {
			n := connect(t, newFake())
			v := n.volume(state.Filesystem)
			must(t, n.d.Stage(t.Context(), v))
			must(t, publish(t.Context(), n.d, v, "pod-1"))
			n.f.on(nodeUnpublish, func(any) error {
				if !c.keep {
					_ = os.Remove(target(v))
				}
				return c.err
			})
			if err := n.d.Unpublish(t.Context(), v, "pod-1"); err == nil {
				t.Error("the first failure was taken as done")
			}
			if err := n.d.Unpublish(t.Context(), v, "pod-1"); (err == nil) != c.second {
				t.Errorf("the second failure: %v, want done %v", err, c.second)
			}
		})
	}
}

func TestDriverLesson11ATargetThatAppearsMeanwhileIsNotDone(t *testing.T) {
	n := connect(t, newFake())
	v := n.volume(state.Filesystem)
	must(t, n.d.dirs.makeParent(target(v)))
	n.f.on(nodeUnpublish, func(any) error { // an earlier publish ends late
		must(t, os.Mkdir(target(v), 0o700))
		return status.Error(codes.Internal, "no mount point specified")
	})
	if err := n.d.Unpublish(t.Context(), v, "pod-1"); err == nil {
		t.Error("taken as done")
	}
}

func TestDriverLesson11TheTransportsInternalIsNotTheDrivers(t *testing.T) {
	for _, answered := range []bool{true, false} {
		if got := unspecific(&rpcError{s: status.New(codes.Internal, "x"), answered: answered}); got != answered {
			t.Errorf("answered %v: %v", answered, got)
		}
	}
}

func TestDriverLesson12AFileInADirectorysPlaceStays(t *testing.T) {
	n := connect(t, newFake())
	v := n.volume(state.Filesystem)
	must(t, n.d.dirs.makeParent(target(v)))
	must(t, os.WriteFile(target(v), nil, 0o600))
	n.f.inject(nodeUnpublish, status.Error(codes.NotFound, "gone"))
	must(t, n.d.Unpublish(t.Context(), v, "pod-1"))
	if !there(target(v)) {
		t.Error("an unexpected file there was removed")
	}
}

func TestDriverLesson5UnstageIsNeverTakenAsDone(t *testing.T) {
	n := connect(t, newFake())
	v := n.volume(state.Filesystem)
	n.f.inject(nodeUnstage, status.Error(codes.Internal, "cannot detach"))
	for range 2 {
		if err := n.d.Unstage(t.Context(), v); err == nil {
			t.Error("a failure with nothing at the staging path was taken as done")
		}
	}
}

func TestDriverLesson6AFailedPublishLeavesNoPlainTarget(t *testing.T) {
	for _, mode := range []state.Mode{state.Filesystem, state.Block} {
		n := connect(t, newFake())
		v := n.volume(mode)
		must(t, n.d.Stage(t.Context(), v))
		n.f.on(nodePublish, func(any) error {
			must(t, place(target(v), mode == state.Block))
			return status.Error(codes.Internal, "mkfs failed")
		})
		if err := publish(t.Context(), n.d, v, "pod-1"); err == nil {
			t.Fatal("the failure is lost")
		}
		if there(target(v)) {
			t.Errorf("%s: a plain target is left", mode)
		}
	}
}

// Faults: A019.
func TestDriverLesson6DataIsNeverRemoved(t *testing.T) {
	n := connect(t, newFake())
	v := n.volume(state.Filesystem)
	must(t, n.d.Stage(t.Context(), v))
	file := filepath.Join(target(v), "file")
	n.f.on(nodePublish, func(any) error {
		_ = os.MkdirAll(target(v), 0o700)
		_ = os.WriteFile(file, []byte("data"), 0o600)
		return status.Error(codes.Internal, "mkfs failed")
	})
	if err := publish(t.Context(), n.d, v, "pod-1"); err == nil {
		t.Fatal("the failure is lost")
	}
	n.f.on(nodeUnpublish, func(any) error { return status.Error(codes.NotFound, "no such volume") })
	must(t, n.d.Unpublish(t.Context(), v, "pod-1"))
	if !there(file) {
		t.Error("a file in the target was removed")
	}
	if !strings.Contains(n.log.String(), "something is left at the target") {
		t.Error("and no error reports it")
	}
}

func TestDriverLesson7AfterADeadlineNothingIsCleanedUp(t *testing.T) {
	n := connect(t, newFake(), func(c *Config) { c.Deadlines.Publish = 50 * time.Millisecond })
	v := n.volume(state.Filesystem)
	must(t, n.d.Stage(t.Context(), v))
	n.f.mu.Lock()
	n.f.fault = func(ctx context.Context, m string, _ any) error {
		if m == nodePublish {
			_ = os.Mkdir(target(v), 0o700)
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	n.f.mu.Unlock()
	if err := publish(t.Context(), n.d, v, "pod-1"); outcome(t, err) != state.Uncertain {
		t.Fatalf("%v, want uncertain", err)
	}
	if !there(target(v)) {
		t.Error("the target of a call that may go on was removed")
	}
}

// Items: N-64.
func TestDriverLesson10NotFoundOnTearDownIsDone(t *testing.T) {
	n := connect(t, newFake())
	v := n.volume(state.Filesystem)
	must(t, n.d.Stage(t.Context(), v))
	must(t, publish(t.Context(), n.d, v, "pod-1"))
	n.f.mu.Lock()
	n.f.fault = func(context.Context, string, any) error { return status.Error(codes.NotFound, "volume deleted") }
	n.f.mu.Unlock()
	must(t, n.d.Unpublish(t.Context(), v, "pod-1"))
	must(t, n.d.Unstage(t.Context(), v))
	if err := n.d.Stage(t.Context(), v); outcome(t, err) != state.Failed {
		t.Errorf("NOT_FOUND of Stage: %v", err)
	}
}

// Items: N-76.
func TestDriverLesson12LeftoversGoByRmdirAndMountsStay(t *testing.T) {
	n := connect(t, newFake())
	v := n.volume(state.Filesystem)
	must(t, n.d.Stage(t.Context(), v))
	must(t, publish(t.Context(), n.d, v, "pod-1"))
	tmpfs(t, target(v))
	n.f.inject(nodeUnpublish, status.Error(codes.NotFound, "it lies")) // the driver lies: the mount is still there
	must(t, n.d.Unpublish(t.Context(), v, "pod-1"))
	if e, err := n.d.dirs.look(mustRel(t, n.d, target(v))); err != nil || !e.mounted {
		t.Errorf("the mount is gone: %+v, %v", e, err)
	}
	must(t, unix.Unmount(target(v), unix.UMOUNT_NOFOLLOW))
	must(t, n.d.Unpublish(t.Context(), v, "pod-1")) // now the driver has left an empty directory
	if there(target(v)) {
		t.Error("an empty leftover stayed")
	}
	must(t, os.WriteFile(filepath.Join(v.Spec.StagePath, "file"), nil, 0o600))
	must(t, n.d.Unstage(t.Context(), v))
	if !there(filepath.Join(v.Spec.StagePath, "file")) {
		t.Error("a file in the staging directory was removed")
	}
}

func TestDriverLesson12ABlockTargetsLeftoverIsUnlinkedIfNothingIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		make func(path string) error
		gone bool
	}{
		"empty file":         {func(p string) error { return os.WriteFile(p, nil, 0o600) }, true},
		"file with content":  {func(p string) error { return os.WriteFile(p, []byte("data"), 0o600) }, false},
		"device node":        {func(p string) error { return unix.Mknod(p, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 200))) }, true},
		"link":               {func(p string) error { return os.Symlink("/dev/loop200", p) }, true},
		"fifo, not expected": {func(p string) error { return unix.Mkfifo(p, 0o600) }, false},
	} {
		n := connect(t, newFake())
		v := n.volume(state.Block)
		must(t, os.MkdirAll(filepath.Dir(target(v)), 0o700))
		must(t, c.make(target(v)))
		n.f.inject(nodeUnpublish, status.Error(codes.NotFound, "gone"))
		must(t, n.d.Unpublish(t.Context(), v, "pod-1"))
		if there(target(v)) == c.gone {
			t.Errorf("%s: still there %v", name, there(target(v)))
		}
	}
}

func mustRel(t *testing.T, d *Driver, path string) string {
	t.Helper()
	rel, err := d.dirs.rel(path)
	must(t, err)
	return rel
}

// Items: N-81, N-83.
// Scenarios: U-90.
func TestStatsTakeOnlyWhatIsSane(t *testing.T) {
	n := connect(t, newFake())
	s, err := n.d.Stats(t.Context(), n.volume(state.Filesystem), "pod-1")
	if err != nil || s.Bytes != (Usage{Total: 100, Used: 40, Available: 60}) {
		t.Errorf("stats %+v, %v", s, err)
	}
	fs, blk := n.volume(state.Filesystem), n.volume(state.Block)
	blk.SizeBytes = 1000
	usage := func(u ...*csi.VolumeUsage) *csi.NodeGetVolumeStatsResponse {
		return &csi.NodeGetVolumeStatsResponse{Usage: u}
	}
	condition := usage()
	inner := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)
	inner = protowire.AppendString(protowire.AppendTag(inner, 2, protowire.BytesType), "disk is gone")
	condition.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), inner))
	for name, c := range map[string]struct {
		v    state.Volume
		r    *csi.NodeGetVolumeStatsResponse
		want Stats
	}{
		"nothing":          {fs, nil, Stats{}},
		"inodes":           {fs, usage(&csi.VolumeUsage{Unit: csi.VolumeUsage_INODES, Total: 5}), Stats{Inodes: Usage{Total: 5}}},
		"unknown unit":     {fs, usage(&csi.VolumeUsage{Unit: 99, Total: 5}), Stats{}},
		"no unit":          {fs, usage(&csi.VolumeUsage{Total: 5}), Stats{}},
		"negative":         {fs, usage(&csi.VolumeUsage{Unit: csi.VolumeUsage_BYTES, Total: 5, Used: -1}), Stats{}},
		"block, size":      {blk, usage(&csi.VolumeUsage{Unit: csi.VolumeUsage_BYTES, Total: 1000}), Stats{Bytes: Usage{Total: 1000}}},
		"block, of /dev":   {blk, usage(&csi.VolumeUsage{Unit: csi.VolumeUsage_BYTES, Total: 10, Used: 1}), Stats{}},
		"block, no size":   {n.volume(state.Block), usage(&csi.VolumeUsage{Unit: csi.VolumeUsage_BYTES, Total: 10}), Stats{}},
		"old condition":    {fs, condition, Stats{Abnormal: true, Condition: "disk is gone"}},
		"a nil usage item": {fs, usage(nil), Stats{}},
	} {
		if got := readStats(c.v, c.r); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
	if a, m := oldCondition([]byte{0x12, 0xff}); a || m != "" {
		t.Errorf("malformed bytes: %v %q", a, m)
	}
}
