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

// The daemon hands out no directory that is not mounted yet, so a container cannot start on
// it and nothing is written to it.
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

// Two tenants use the same names for their claims and volumes: each has its own volume,
// staging directory and files.
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

// The daemon reaches its limit of open files: it lives on, mounted volumes stay, and new
// ones wait until there is room again. If memory runs out, the kernel sends SIGKILL;
// test/crash covers that.
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
	none := unix.Rlimit{Cur: uint64(len(fds)) - 2, Max: was.Max} // a connection may have just ended
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

// The node has another name after a restart: the daemon makes no call and changes no mount.
//
// Faults: A065.
func TestAnotherNameOfTheNode(t *testing.T) {
	t.Parallel()
	n := newNode(t, csistrict.Script{})
	n.Apply(harness.Pod("web", inline()))
	n.Mounted("web")
	before, calls := n.table(), n.nodeCalls()
	n.flags = []string{"--node-name", "another"}
	n.daemon.Ask() // so that the daemon writes what it just mounted
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

// Loop device, target and link of a raw block volume are missing, in every combination: the
// daemon takes the missing parts as removed, and removes the rest.
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
		// The daemon must not see a part vanish while it looks.
		n.daemon.Paused(func() { n.takeParts(target, parts&1 != 0, parts&2 != 0, parts&4 != 0) })
		n.DeletePods(name)
		n.DeleteClaims(name)
	}
	n.NoVolumes()
	for _, b := range csistrict.Breaches(n.events("")) {
		if b.Rule != "N-76" { // the test, not the driver, removed the target
			t.Errorf("breach of %s by %s: %s", b.Rule, b.Call, b.Text)
		}
	}
	if left := append(n.Mounts(), n.Loops()...); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// takeParts removes parts of the only raw block volume.
func (n *node) takeParts(target string, loop, mount, link bool) {
	n.T.Helper()
	var err error
	if loop {
		for _, device := range n.Loops() {
			f, e := os.Open(device)
			if e != nil {
				n.T.Fatal(e)
			}
			unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0) // the kernel detaches it with its last user
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

// A process works in a volume that is to be removed: explain and who name it. When it ends,
// the daemon removes the volume without an operator.
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

// A node shuts down: the daemon unpublishes volumes and then unstages them, and drain
// returns once nothing is staged. If the timeout is too short, drain says what is left, and
// the next daemon finishes it from the journal.
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

// Without a cluster, pod, driver and daemon may go in any order: all volumes are removed
// once driver and daemon are back.
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
					if gone { // no daemon runs that could delete the pod, so start the next one
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
