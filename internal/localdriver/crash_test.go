package localdriver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// victim is a driver in a process of its own, which the test kills over and over.
type victim struct {
	*rig
	cmd    *exec.Cmd
	kills  int
	cutOff int // calls that a kill interrupted
}

func (v *victim) launch() {
	v.t.Helper()
	v.cmd = exec.Command("/proc/self/exe")
	v.cmd.Env = append(os.Environ(), envServe+"="+v.dir)
	v.cmd.Stderr = os.Stderr
	v.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := v.cmd.Start(); err != nil {
		v.t.Fatal(err)
	}
}

func (v *victim) kill() {
	v.cmd.Process.Kill()
	v.cmd.Wait()
	v.kills++
}

// ready waits until the driver answers: the connection may still be that to the killed one.
func (v *victim) ready(ctx context.Context) {
	v.t.Helper()
	for {
		_, err := v.Probe(ctx, &csi.ProbeRequest{})
		if err == nil {
			return
		}
		if status.Code(err) != codes.Unavailable {
			v.t.Fatal(err)
		}
	}
}

// survive makes a call, kills the driver after a while, starts another, and repeats the
// call until it succeeds, as a CO does. Then the new driver answers: if the call had ended before
// the kill, the connection may still be that to the killed one.
func (v *victim) survive(after time.Duration, what string, call func(ctx context.Context) error) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.ctx, 2*time.Minute)
	defer cancel()
	v.ready(ctx)
	first := make(chan error, 1)
	go func() { first <- call(ctx) }()
	killer := time.NewTimer(after)
	<-killer.C
	v.kill()
	v.launch()
	err := <-first
	if err != nil {
		v.cutOff++
	}
	for err != nil {
		switch code := status.Code(err); code {
		case codes.Unavailable, codes.Canceled, codes.Aborted:
			err = call(ctx)
		default:
			v.t.Fatalf("%s, killed after %v: repeated call: %v", what, after, err)
		}
	}
	v.ready(ctx)
}

// After kill -9 at any moment of any call, the same call again does the rest, and in the
// end nothing is left behind.
func TestKilledAtAnyMomentEveryCallCanBeRepeated(t *testing.T) {
	moments := []time.Duration{0, 300 * time.Microsecond, 2 * time.Millisecond, 8 * time.Millisecond, 40 * time.Millisecond}
	for _, kind := range []string{"xfs", "ext4", "block", "directory", "inline"} {
		t.Run(kind, func(t *testing.T) {
			v := &victim{rig: &rig{t: t, ctx: context.Background(), dir: t.TempDir()}}
			v.launch()
			conn := v.connect()
			defer func() {
				v.kill()
				conn.Close()
				checkNothingLeft(t, v.dir)
			}()
			for round, after := range moments {
				if kind == "inline" {
					v.inlineLife(after)
				} else {
					v.life(kind, round, after)
				}
				for _, sub := range []string{recordsDir, snapshotsDir, groupsDir, attachedDir, dataDir} {
					left, err := os.ReadDir(v.path("state", sub))
					if err != nil || len(left) > 0 {
						t.Errorf("killed after %v: left in %s: %v, %v", after, sub, left, err)
					}
				}
				checkNothingLeft(t, v.dir)
			}
			t.Logf("killed %d times, %d times during the call", v.kills, v.cutOff)
			if v.cutOff == 0 {
				t.Error("no call was cut off")
			}
		})
	}
}

// life takes a volume through everything that can happen to it, with a kill in each step.
func (v *victim) life(kind string, round int, after time.Duration) {
	v.t.Helper()
	name := fmt.Sprintf("%s-%d", kind, round)
	req := createReq(name, 32*mib, fsCap("", multi))
	switch kind {
	case "block":
		req.VolumeCapabilities[0] = blockCap(multi)
	case "directory":
		req = directoryReq(name)
	default:
		req.VolumeCapabilities[0] = fsCap(kind, multi)
	}
	volumes := map[string]vol{}
	create := func(ctx context.Context) error {
		resp, err := v.CreateVolume(ctx, req)
		if err == nil {
			volumes[req.Name] = vol{r: v.rig, id: resp.GetVolume().GetVolumeId(), cap: req.VolumeCapabilities[0]}
		}
		return err
	}
	v.survive(after, "create", create)
	it, target := volumes[name], v.path("target")
	v.survive(after, "stage", func(context.Context) error { return it.stageErr() })
	v.survive(after, "publish", func(context.Context) error { return it.publishErr(target, false) })
	if kind == "block" {
		writeDirect(v.t, target, 'x')
	} else {
		mustWrite(v.t, target+"/file", "text")
	}
	larger := &csi.CapacityRange{RequiredBytes: req.CapacityRange.RequiredBytes * 2}
	v.survive(after, "expand", func(ctx context.Context) error {
		_, err := v.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: it.id, CapacityRange: larger})
		return err
	})
	v.survive(after, "node expand", func(context.Context) error {
		if err := it.nodeExpandErr(target); kind != "ext4" || status.Code(err) != codes.FailedPrecondition {
			return err
		}
		return nil // no CAP_SYS_RESOURCE
	})
	if kind != "block" {
		v.copies(after, it, req, volumes, create)
	}
	v.survive(after, "unpublish", func(context.Context) error { return it.unpublishErr(target) })
	v.survive(after, "unstage", func(context.Context) error { return it.unstageErr() })
	g := v.group(after, slices.Collect(maps.Keys(volumes)), volumes)
	v.survive(after, "delete group", func(context.Context) error { return v.uncut(g) })
	for _, x := range volumes {
		v.survive(after, "delete", func(ctx context.Context) error {
			_, err := v.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: x.id})
			return err
		})
	}
}

// copies takes a snapshot of a volume in use, restores it, and checks its content.
func (v *victim) copies(after time.Duration, it vol, req *csi.CreateVolumeRequest, volumes map[string]vol, create func(context.Context) error) {
	v.t.Helper()
	snapshot := ""
	v.survive(after, "snapshot", func(ctx context.Context) error {
		resp, err := v.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: req.Name, SourceVolumeId: it.id})
		snapshot = resp.GetSnapshot().GetSnapshotId()
		return err
	})
	req.Name += "-restored"
	req.VolumeContentSource = fromSnapshot(snapshot)
	req.CapacityRange = nil
	v.survive(after, "restore", create)
	restored := volumes[req.Name]
	wantFile(v.t, restored.up()+"/file", "text")
	restored.down()
	v.survive(after, "delete snapshot", func(ctx context.Context) error {
		_, err := v.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: snapshot})
		return err
	})
}

// group takes a group snapshot of volumes by their names.
func (v *victim) group(after time.Duration, names []string, volumes map[string]vol) (g *csi.VolumeGroupSnapshot) {
	v.t.Helper()
	req := &csi.CreateVolumeGroupSnapshotRequest{Name: "group"}
	for _, name := range names {
		req.SourceVolumeIds = append(req.SourceVolumeIds, volumes[name].id)
	}
	v.survive(after, "group", func(ctx context.Context) error {
		resp, err := v.CreateVolumeGroupSnapshot(ctx, req)
		g = resp.GetGroupSnapshot()
		return err
	})
	if len(g.GetSnapshots()) != len(names) || !g.GetReadyToUse() {
		v.t.Errorf("killed after %v: the group is %v", after, g)
	}
	return g
}

// If the driver is killed while it takes a group snapshot of volumes that a program writes to, the program
// can write on, and the same call again makes a group of one moment.
func TestAGroupThatAKillCutsOffIsOfOneMoment(t *testing.T) {
	v := &victim{rig: &rig{t: t, ctx: context.Background(), dir: t.TempDir()}}
	v.launch()
	conn := v.connect()
	defer func() {
		v.kill()
		conn.Close()
		checkNothingLeft(t, v.dir)
	}()
	volumes := map[string]vol{}
	volume := func(req *csi.CreateVolumeRequest) string {
		resp, err := v.CreateVolume(v.ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		volumes[req.Name] = vol{r: v.rig, id: resp.GetVolume().GetVolumeId(), cap: req.VolumeCapabilities[0]}
		return volumes[req.Name].up()
	}
	first, between := volume(createReq("first", 32*mib, fsCap("ext4", multi))), volume(createReq("between", 64*mib, fsCap("ext4", multi)))
	second := volume(createReq("second", 32*mib, fsCap("ext4", multi)))
	fill(t, between, 32*mib)
	c := count(t, first, second)
	for _, after := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond, 60 * time.Millisecond, 100 * time.Millisecond} {
		g := v.group(after, []string{"first", "between", "second"}, volumes)
		var restored [2]string
		for i, member := range []int{0, 2} {
			restored[i] = volume(&csi.CreateVolumeRequest{
				Name: fmt.Sprint("restored-", i), VolumeCapabilities: []*csi.VolumeCapability{fsCap("ext4", multi)},
				VolumeContentSource: fromSnapshot(g.GetSnapshots()[member].GetSnapshotId()),
			})
		}
		wantOneMoment(t, restored[0], restored[1])
		for i := range restored {
			v.gone(volumes[fmt.Sprint("restored-", i)])
		}
		if err := v.uncut(g); err != nil {
			t.Fatal(err)
		}
	}
	c.end(t)
	for _, name := range []string{"first", "between", "second"} {
		v.gone(volumes[name])
	}
	for _, sub := range []string{recordsDir, groupsDir, attachedDir, dataDir} {
		if left, err := os.ReadDir(v.path("state", sub)); err != nil || len(left) > 0 {
			t.Errorf("left in %s: %v, %v", sub, left, err)
		}
	}
	t.Logf("killed %d times, %d times during the call", v.kills, v.cutOff)
	if v.cutOff == 0 {
		t.Error("no call was cut off")
	}
}

// gone takes a volume down and deletes it.
func (v *victim) gone(x vol) {
	v.t.Helper()
	x.down()
	if _, err := v.DeleteVolume(v.ctx, &csi.DeleteVolumeRequest{VolumeId: x.id}); err != nil {
		v.t.Fatal(err)
	}
}

func (v *victim) inlineLife(after time.Duration) {
	v.t.Helper()
	target := v.path("target")
	req := inlineReq(inlineID, target, map[string]string{"size": "32Mi"})
	v.survive(after, "publish", func(ctx context.Context) error {
		_, err := v.NodePublishVolume(ctx, req)
		return err
	})
	mustWrite(v.t, target+"/file", "text")
	v.survive(after, "unpublish", func(context.Context) error {
		return vol{r: v.rig, id: inlineID}.unpublishErr(target)
	})
	if _, err := os.Lstat(target); !errors.Is(err, fs.ErrNotExist) {
		v.t.Errorf("target is left: %v", err)
	}
}

// An mkfs that outlived its driver would format what the next one has mounted.
func TestToolsDieWithTheDriver(t *testing.T) {
	fifo := t.TempDir() + "/fifo"
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envTool+"="+fifo)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(fifo) // returns once the tool has opened it, too
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	// Read returns the end of the file when the tool has ended.
	if err := held.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := held.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("read = %d, %v: the tool outlived its driver", n, err)
	}
}
