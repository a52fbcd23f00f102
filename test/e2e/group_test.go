package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// moments returns how many group snapshots to make; E2E_SNAPSHOTS asks for more.
func moments(t *testing.T) int {
	text := os.Getenv("E2E_SNAPSHOTS")
	if text == "" {
		return 4
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("E2E_SNAPSHOTS: %v", err)
	}
	return n
}

// labelled returns a claim with the label that selects the group.
func labelled(name string) string {
	return strings.Replace(claim(name, "64Mi", fileSystem, rwo), "{name: "+name+"}", "{name: "+name+", labels: {app: shop}}", 1)
}

// counter writes growing numbers, each into the file of one volume, with fsync, and then
// into that of the other, as a database writes its log and then its table.
type counter struct {
	files [2]*os.File
	stop  chan struct{}
	ended chan error
}

func count(t *testing.T, dirs [2]string) *counter {
	t.Helper()
	c := &counter{stop: make(chan struct{}), ended: make(chan error, 1)}
	for i, dir := range dirs {
		f, err := os.Create(filepath.Join(dir, "count"))
		if err != nil {
			t.Fatal(err)
		}
		c.files[i] = f
	}
	begun := make(chan struct{})
	go func() {
		var err error
		for n := 0; err == nil; n++ {
			for _, f := range c.files {
				_, writeErr := f.WriteAt([]byte(strconv.Itoa(n)), 0)
				err = errors.Join(err, writeErr, f.Sync())
			}
			if n == 0 {
				close(begun)
			}
			select {
			case <-c.stop:
				c.ended <- errors.Join(err, c.files[0].Close(), c.files[1].Close())
				return
			default:
			}
		}
		c.ended <- err
	}()
	<-begun
	return c
}

func (c *counter) end(t *testing.T) {
	t.Helper()
	close(c.stop)
	if err := <-c.ended; err != nil {
		t.Errorf("the program that writes: %v", err)
	}
}

// oneMoment restores two snapshots, and reports whether their numbers existed at one
// moment.
func (n *node) oneMoment(first, second string) bool {
	t := n.T
	t.Helper()
	n.Do("", "snapshot", "restore", first, "pvc/old-first")
	n.Do("", "snapshot", "restore", second, "pvc/old-second")
	n.Apply(harness.Pod("reader", harness.FromClaim("first", "old-first"), harness.FromClaim("second", "old-second")))
	n.Mounted("reader")
	var held [2]int
	for i, name := range []string{"first", "second"} {
		text, err := os.ReadFile(filepath.Join(n.HostPath("reader", name), "count"))
		if err == nil {
			held[i], err = strconv.Atoi(string(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	n.Do("", "delete", "pod", "reader")
	n.Do("", "wait", "pod", "reader", "--for=unmounted", "--timeout=1m")
	n.Do("", "delete", "pvc", "old-first", "old-second")
	return held[0] == held[1] || held[0] == held[1]+1
}

// A program writes to two volumes without a pause. The clones of a group snapshot show one
// moment, whether the driver makes groups or not; the clones of two separate snapshots do
// not. If the daemon is killed meanwhile, the next one thaws all volumes at its start, and
// the group exists once. The group is deleted as a whole.
//
// Sidecars: SS-17.
func TestSnapshotsOfAGroup(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		for _, k.alone = range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/alone=%v", k.label, k.alone), func(t *testing.T) {
				t.Parallel()
				n := newNode(t, k)
				n.Apply(n.driver.class(), labelled("first"), labelled("second"), harness.Pod("web", harness.FromClaim("first", "first"), harness.FromClaim("second", "second")))
				n.Mounted("web")
				if k.sizes {
					n.groupsHold()
				} else {
					n.groupsComeAndGo()
				}
				n.DeletePods("web")
				n.DeleteClaims("first", "second")
				n.nothingLeft()
			})
		}
	}
}

func (n *node) consistencyOf(group string) string {
	return n.Do("", "get", "groupsnapshots", group, "-o", "jsonpath={.consistency}")
}

// groupsHold is the test for a driver whose volumes can be frozen.
func (n *node) groupsHold() {
	t := n.T
	call, word := "CreateVolumeGroupSnapshot", "crash"
	if n.driver.alone {
		call, word = "CreateSnapshot", "apart"
		if r := n.CLI("", "snapshot", "create", "-l", "app=shop", "--name=none"); r.Code == 0 || !strings.Contains(r.Stderr, "does not support group snapshots") {
			t.Errorf("without a freeze: %s%s", r.Stdout, r.Stderr)
		}
		n.Do("", "delete", "groupsnapshot", "none")
	}
	c := count(t, [2]string{n.HostPath("web", "first"), n.HostPath("web", "second")})
	for i := range moments(t) {
		name := fmt.Sprintf("g%d", i)
		n.Do("", "snapshot", "create", "-l", "app=shop", "--name", name, "--freeze=1m")
		if got := n.consistencyOf(name); got != "frozen" {
			t.Errorf("%s is %q", name, got)
		}
		if !n.oneMoment(name+"-first", name+"-second") {
			t.Errorf("%s holds two moments", name)
		}
		n.Do("", "delete", "groupsnapshot", name)
	}
	n.Do("", "snapshot", "create", "pvc/second", "--name=before")
	n.Do("", "snapshot", "create", "pvc/first", "--name=after")
	if n.oneMoment("after", "before") {
		t.Error("two snapshots in a row hold one moment: this test cannot fail")
	}
	n.Do("", "delete", "snapshot", "--all", "--yes")

	held := n.driver.proxy.hold(call, false)
	n.Do("", "snapshot", "create", "-l", "app=shop", "--name=killed", "--freeze=1m", "--timeout=0")
	n.reached(held)
	n.daemon.Kill()
	n.start()
	c.end(t) // the program can write: nothing is frozen
	close(held.on)
	n.DriverUp(n.driver.name)
	n.Eventually("the group to be ready", func() bool {
		return n.CLI("", "get", "groupsnapshots", "killed", "-o", "jsonpath={.readyToUse}").Stdout == "true"
	})
	if got := n.consistencyOf("killed"); got != word {
		t.Errorf("killed is %q, want %q", got, word)
	}
	if r := n.CLI("", "delete", "snapshot", "killed-first"); r.Code == 0 || !strings.Contains(r.Stderr, "delete groupsnapshot killed") {
		t.Errorf("delete of one snapshot: %s%s", r.Stdout, r.Stderr)
	}
	n.wantSnapshots(2)
	n.Do("", "delete", "groupsnapshot", "killed", "--reason", "restored")
	n.wantSnapshots(0)
}

// groupsComeAndGo is the test for a driver whose volumes are directories of a larger file
// system.
func (n *node) groupsComeAndGo() {
	t := n.T
	if r := n.CLI("", "snapshot", "create", "-l", "app=shop", "--name=still", "--freeze=10s", "--timeout=1s"); r.Code == 0 || !strings.Contains(r.Stderr, "only its directory") {
		t.Errorf("of directories: %s%s", r.Stdout, r.Stderr)
	}
	n.Do("", "delete", "groupsnapshot", "still")
	n.wantSnapshots(0)
	if n.driver.alone || !n.driver.strict {
		return
	}
	n.Do("", "snapshot", "create", "-l", "app=shop", "--name=monday")
	n.wantSnapshots(2)
	n.Do("", "snapshot", "restore", "monday-first", "pvc/old")
	n.Do("", "delete", "pvc", "old")
	n.Do("", "delete", "groupsnapshot", "--all", "--yes")
	n.wantSnapshots(0)
}

// wantSnapshots fails the test if the driver does not have that many snapshots.
func (n *node) wantSnapshots(want int) {
	n.T.Helper()
	all, err := csi.NewControllerClient(n.driver.proxy.conn).ListSnapshots(n.T.Context(), &csi.ListSnapshotsRequest{})
	if err != nil || len(all.GetEntries()) != want {
		n.T.Errorf("snapshots at the driver: %v, %v, want %d", all, err, want)
	}
}

// A VolumeGroupSnapshotContent names a group snapshot that another program made at the
// driver. Its snapshots are listed, restored and deleted with their group, and the
// content's deletionPolicy applies.
func TestAGroupThatIsThereIsNamedByAContent(t *testing.T) {
	eachKind(t, func(n *node) {
		t := n.T
		if !n.driver.local && !n.driver.strict {
			t.Skip("the driver is not known to make group snapshots")
		}
		n.Apply(n.driver.class(), claim("first", "64Mi", fileSystem, rwo), claim("second", "64Mi", fileSystem, rwo),
			harness.Pod("web", harness.FromClaim("first", "first"), harness.FromClaim("second", "second")))
		n.Mounted("web")
		for _, name := range []string{"first", "second"} {
			write(t, filepath.Join(n.HostPath("web", name), "f"), name)
		}
		n.DeletePods("web")
		group := n.cutByAnother("first", "second")
		first, second := group.GetSnapshots()[0], group.GetSnapshots()[1]
		content := func(policy string) string {
			return fmt.Sprintf(`apiVersion: groupsnapshot.storage.k8s.io/v1
kind: VolumeGroupSnapshotContent
metadata: {name: theirs}
spec:
  driver: %s
  deletionPolicy: %s
  volumeGroupSnapshotRef: {namespace: default, name: old}
  source:
    groupSnapshotHandles:
      volumeGroupSnapshotHandle: %s
      volumeSnapshotHandles: [%s, %s]`, n.driver.name, policy, group.GetGroupSnapshotId(), first.GetSnapshotId(), second.GetSnapshotId())
		}
		named := `apiVersion: groupsnapshot.storage.k8s.io/v1
kind: VolumeGroupSnapshot
metadata: {name: old}
spec: {source: {volumeGroupSnapshotContentName: theirs}}`
		n.Apply(content("Retain"), named)
		n.Eventually("the group to be ready", func() bool {
			return n.CLI("", "get", "groupsnapshots", "old", "-o", "jsonpath={.readyToUse}").Stdout == "true"
		})
		if calls := n.driver.proxy.count("CreateVolumeGroupSnapshot"); calls != 0 {
			t.Errorf("the group was made again: %d calls", calls)
		}
		for i, s := range []*csi.Snapshot{first, second} {
			name, source := fmt.Sprintf("old-%d", i+1), []string{"first", "second"}[i]
			if got := n.Do("", "get", "snapshots", name, "-o", "jsonpath={.snapshotHandle} {.volumeGroupSnapshotName}"); got != s.GetSnapshotId()+" old" {
				t.Errorf("snapshot %s is %q, want %s of group old", name, got, s.GetSnapshotId())
			}
			n.Do("", "snapshot", "restore", name, "pvc/of-"+source, "--size=64Mi", "--class=class")
		}
		n.Apply(harness.Pod("reader", harness.FromClaim("first", "of-first"), harness.FromClaim("second", "of-second")))
		n.Mounted("reader")
		for _, name := range []string{"first", "second"} {
			if text, err := os.ReadFile(filepath.Join(n.HostPath("reader", name), "f")); err != nil || string(text) != name {
				t.Errorf("restored of %s: %q, %v", name, text, err)
			}
		}
		n.DeletePods("reader")
		n.DeleteClaims("of-first", "of-second")

		if r := n.CLI("", "delete", "groupsnapshot", "old"); r.Code != 0 || !strings.Contains(r.Stdout, "kept") {
			t.Errorf("delete with the policy Retain: %s%s", r.Stdout, r.Stderr)
		}
		n.wantSnapshots(2)
		n.Apply(content("Delete"), named)
		n.Eventually("the group to be ready again", func() bool {
			return n.CLI("", "get", "groupsnapshots", "old", "-o", "jsonpath={.readyToUse}").Stdout == "true"
		})
		n.Do("", "delete", "groupsnapshot", "old", "--reason", "restored")
		n.wantSnapshots(0)
		n.DeleteClaims("first", "second")
		n.nothingLeft()
	})
}

// cutByAnother makes a group snapshot of the claims' volumes at the driver, without
// csi-volmgr.
func (n *node) cutByAnother(claims ...string) *csi.VolumeGroupSnapshot {
	n.T.Helper()
	conn, err := dial(n.driver.socket())
	if err != nil {
		n.T.Fatal(err)
	}
	defer conn.Close()
	req := &csi.CreateVolumeGroupSnapshotRequest{Name: "of-another"}
	for _, claim := range claims {
		volume := n.Do("", "get", "pvc", claim, "-o", "jsonpath={.volume}")
		req.SourceVolumeIds = append(req.SourceVolumeIds, n.Do("", "get", "pv", volume, "-o", "jsonpath={.handle}"))
	}
	var made *csi.CreateVolumeGroupSnapshotResponse
	n.Eventually("the volumes to have no other call in flight", func() bool {
		made, err = csi.NewGroupControllerClient(conn).CreateVolumeGroupSnapshot(n.T.Context(), req)
		return status.Code(err) != codes.Aborted
	})
	if err != nil {
		n.T.Fatal(err)
	}
	return made.GetGroupSnapshot()
}
