package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// What has not been mounted is handed to nobody: a container does not start on
// the directory that waits for its mount, which nothing is written to.
//
// Faults: A018.
func TestDirectoryThatWaitsForItsMountIsHandedToNobody(t *testing.T) {
	t.Parallel()
	n := newBadNode(t, csistrict.Script{Faults: []csistrict.Fault{
		bad("NodePublishVolume", csistrict.Fault{Effect: csistrict.EffectPartial, IgnoreCancel: true, Delay: 100}),
	}})
	n.Apply(harness.Pod("bad", fromClaim("bad")))
	for range 3 {
		n.await("NodePublishVolume", n.begun("NodePublishVolume")+1)
		n.refused("bad", "answered OK without the effect")
		if out := n.Do("", "get", "mounts", "--pod", "bad"); strings.Contains(out, n.Root) {
			t.Errorf("handed out: %s", out)
		}
	}
	n.heal()
	n.Mounted("bad")
	n.verified("bad")
	n.DeletePods("bad")
	n.DeleteClaims("bad")
	n.verdict()
}

// Two tenants call their claims and volumes alike: each has a volume, a staging
// directory and files of its own.
//
// Items: N-67.
// Faults: A024.
func TestTenantsThatNameTheirVolumesAlike(t *testing.T) {
	t.Parallel()
	n := newNode(t, csistrict.Script{})
	tenants := []string{"red", "blue"}
	for _, tenant := range tenants {
		in := func(doc string) string {
			return strings.ReplaceAll(doc, "metadata: {", "metadata: {namespace: "+tenant+", ")
		}
		n.Apply(in(want{name: "data"}.String()), in(harness.Pod("web", fromClaim("data"))))
	}
	paths := map[string]string{}
	for _, tenant := range tenants {
		if r := n.CLI("", "wait", "pod", "web", "-n", tenant, "--for=mounted", "--timeout", harness.Patience.String()); r.Code != 0 {
			t.Fatalf("pod of %s: %s", tenant, r.Stderr)
		}
		mounts, err := n.API.Mounts(t.Context(), tenant, "web")
		if err != nil || len(mounts) != 1 {
			t.Fatalf("%v, %v", mounts, err)
		}
		paths[tenant] = filepath.Join(mounts[0].HostPath, "f")
		n.write(paths[tenant], tenant)
	}
	staged := map[string]bool{}
	for _, m := range n.Mounts() {
		if strings.HasSuffix(m, "globalmount") {
			staged[m] = true
		}
	}
	if len(staged) != len(tenants) {
		t.Errorf("staged at %v", staged)
	}
	for _, tenant := range tenants {
		n.wantFile(paths[tenant], tenant)
	}
	n.Do("", "delete", "pod", "web", "-n", "red")
	n.Eventually("one volume to be left", func() bool {
		all, err := n.API.Volumes(t.Context())
		return err == nil && len(all) == 1
	})
	n.wantFile(paths["blue"], "blue")
	n.Do("", "delete", "pod", "web", "-n", "blue")
	n.NoVolumes()
	for _, tenant := range tenants {
		n.Do("", "delete", "pvc", "data", "-n", tenant)
	}
	n.Eventually("the claims to be gone", func() bool {
		all, err := n.API.PersistentVolumes(t.Context())
		return err == nil && len(all) == 0
	})
	n.verdict()
}

// The daemon has as many files open as it may: it lives on, what is mounted
// stays, what is new waits, and goes on when there is room again. Memory that
// runs out is SIGKILL, of which test/crash tells.
//
// Faults: A054.
func TestLimitOfOpenFiles(t *testing.T) {
	t.Parallel()
	n := newNode(t, csistrict.Script{})
	n.Apply(harness.Pod("stays", inline()))
	n.Mounted("stays")
	path := filepath.Join(n.HostPath("stays", "data"), "f")
	n.write(path, "kept")
	n.driver.Kill()
	var pods, docs []string
	for i := range 20 {
		pods = append(pods, fmt.Sprintf("new-%d", i))
		docs = append(docs, harness.Pod(pods[i], inline()))
	}
	n.Apply(docs...)
	pid := n.daemon.Pid()
	var was unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &was); err != nil {
		t.Fatal(err)
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	none := unix.Rlimit{Cur: uint64(len(fds)) - 2, Max: was.Max} // a connection may have ended just now
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &none, nil); err != nil {
		t.Fatal(err)
	}
	n.startDriver()
	n.Eventually("the daemon to lack descriptors", func() bool {
		select {
		case <-n.daemon.Done():
			t.Fatal("the daemon ended")
		default:
		}
		log, err := os.ReadFile(n.daemon.Log())
		return err == nil && strings.Contains(string(log), "too many open files")
	})
	n.wantFile(path, "kept")
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &was, nil); err != nil {
		t.Fatal(err)
	}
	n.Mounted(pods...)
	n.wantFile(path, "kept")
	n.DeletePods(append(pods, "stays")...)
	n.verdict()
}

// The node has another name after a restart: nothing is made or taken away for it.
//
// Faults: A065.
func TestAnotherNameOfTheNode(t *testing.T) {
	t.Parallel()
	n := newNode(t, csistrict.Script{})
	n.Apply(harness.Pod("web", inline()))
	n.Mounted("web")
	before, calls := n.table(), n.nodeCalls()
	n.flags = []string{"--node-name", "another"}
	n.daemon.Ask() // so that it is written what was just mounted
	n.restart()
	n.Mounted("web")
	if after := n.table(); !slices.Equal(before, after) {
		t.Errorf("mounts: %q became %q", before, after)
	}
	if after := n.nodeCalls(); !slices.Equal(calls, after) {
		t.Errorf("calls made: %q", after[len(calls):])
	}
	n.DeletePods("web")
	n.verdict()
}

// A raw block volume whose loop device, target and link are gone, in every
// combination: what is gone is done, and the rest goes.
//
// Faults: A099.
func TestBlockVolumeWithPartsMissing(t *testing.T) {
	t.Parallel()
	n := newNode(t, csistrict.Script{})
	for parts := range 8 {
		name := fmt.Sprintf("disk-%d", parts)
		disk := fromClaim(name)
		disk.Block = true
		n.Apply(want{name: name, mode: "Block"}.String(), harness.Pod(name, disk))
		n.Mounted(name)
		target := ""
		for _, m := range n.Mounts() {
			if strings.Contains(m, "/publish/") {
				target = m
			}
		}
		if target == "" {
			t.Fatalf("no target among %q", n.Mounts())
		}
		// The daemon sees parts missing, never a part that goes under its hands.
		n.daemon.Paused(func() { n.takeParts(target, parts&1 != 0, parts&2 != 0, parts&4 != 0) })
		n.DeletePods(name)
		n.DeleteClaims(name)
	}
	n.NoVolumes()
	for _, b := range csistrict.Breaches(n.events("")) {
		if b.Rule != "N-76" { // that the target was removed by somebody else than its driver, which it was
			t.Errorf("breach of %s by %s: %s", b.Rule, b.Call, b.Text)
		}
	}
	if left := append(n.Mounts(), n.Loops()...); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// takeParts takes parts of the only raw block volume away.
func (n *node) takeParts(target string, loop, mount, link bool) {
	n.T.Helper()
	var err error
	if loop {
		for _, device := range n.Loops() {
			f, e := os.Open(device)
			if e != nil {
				n.T.Fatal(e)
			}
			unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0) // it goes with its last user
			f.Close()
		}
	}
	if mount {
		err = errors.Join(unix.Unmount(target, unix.UMOUNT_NOFOLLOW), os.Remove(target))
	}
	if link {
		links, e := filepath.Glob(filepath.Join(n.Root, "pods", "*", "volumeDevices", "*", "*"))
		if e != nil || len(links) != 1 {
			n.T.Fatalf("links: %q, %v", links, e)
		}
		err = errors.Join(err, os.Remove(links[0]))
	}
	if err != nil {
		n.T.Fatal(err)
	}
}

// Somebody works in a volume that is to go: he is named, and when he lets go the
// volume goes without anybody's doing.
//
// Faults: A102.
func TestWhoKeepsAVolumeIsNamed(t *testing.T) {
	t.Parallel()
	n := newNode(t, csistrict.Script{})
	n.Apply(harness.Pod("web", inline(), volume{Name: "memory", Source: "emptyDir: {medium: Memory}"}))
	n.Mounted("web")
	var holders []*exec.Cmd
	for _, v := range []string{"data", "memory"} {
		cmd := exec.Command("sleep", "1000")
		cmd.Dir = n.HostPath("web", v)
		cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		holders = append(holders, cmd)
	}
	n.Remove("web")
	t.Log(n.explained("pod", "web", "busy", fmt.Sprintf("sleep (pid %d", holders[1].Process.Pid)))
	volumes, err := n.API.Volumes(t.Context())
	if err != nil || len(volumes) != 2 {
		t.Fatalf("volumes: %+v, %v", volumes, err)
	}
	said := ""
	for _, v := range volumes {
		said += n.Do("", "who", string(v.Volume.ID))
	}
	for _, cmd := range holders {
		if !strings.Contains(said, fmt.Sprintf("%d sleep", cmd.Process.Pid)) {
			t.Errorf("process %d is not named:\n%s", cmd.Process.Pid, said)
		}
		cmd.Process.Kill()
		cmd.Wait()
	}
	n.Unmounted("web")
	n.verdict()
}

// The machine stops: volumes are unpublished, and then unstaged, and who waits is
// told when nothing is staged. Where the time is too short the rest is told, is
// in the journal, and goes on in the next life.
//
// Faults: A103, A104.
func TestDrainWithSlowUnstages(t *testing.T) {
	t.Parallel()
	n := newBadNode(t, csistrict.Script{Faults: []csistrict.Fault{bad("NodeUnstageVolume", csistrict.Fault{Delay: 1500, IgnoreCancel: true})}})
	n.Apply(harness.Pod("bad", fromClaim("bad")), want{name: "good"}.String(), harness.Pod("good", fromClaim("good")))
	n.Mounted("bad", "good")
	r := n.CLI("", "drain", "--consumers-stopped", "--wait=unstaged", "--timeout=200ms")
	if r.Code != 124 || !strings.Contains(r.Stderr, "bad") && !strings.Contains(r.Stderr, "flight") {
		t.Errorf("too short: exit code %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	t.Log(r.Stderr)
	n.restart()
	if r := n.CLI("", "drain", "--consumers-stopped", "--wait=unstaged", "--timeout="+harness.Patience.String()); r.Code != 0 {
		t.Errorf("exit code %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	for id, v := range n.model().Volumes {
		if v.Stage.Phase != "" || len(v.Targets) > 0 {
			t.Errorf("volume %s is still there: %+v", id, v)
		}
	}
	n.Do("", "undrain")
	n.heal()
	n.Mounted("bad", "good")
	n.over("bad", "good")
}

// Without a cluster nobody keeps an order: whatever of pod, driver and daemon
// goes first, all is taken away once they are back.
//
// Faults: A105.
func TestRemovalInAnyOrder(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"pod driver daemon", "pod daemon driver", "driver pod daemon", "driver daemon pod", "daemon driver pod", "daemon pod driver"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, csistrict.Script{})
			n.Apply(want{name: "data"}.String(), harness.Pod("web", fromClaim("data")), harness.Pod("inline", inline()))
			n.Mounted("web", "inline")
			gone := false
			for what := range strings.FieldsSeq(order) {
				switch what {
				case "pod":
					if gone { // nobody is there to be told; the next daemon is
						n.start()
						gone = false
					}
					n.Remove("web", "inline")
				case "driver":
					n.driver.Kill()
				case "daemon":
					n.daemon.Kill()
					gone = true
				}
			}
			if gone {
				n.start()
			}
			n.startDriver()
			n.Unmounted("web", "inline")
			n.DeleteClaims("data")
			n.verdict()
		})
	}
}
