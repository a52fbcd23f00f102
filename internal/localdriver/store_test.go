package localdriver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

func TestRestartRemembersEverything(t *testing.T) {
	r := newRig(t)
	v := r.create(createReq("v", 64*mib, fsCap("", multi)))
	target := v.up()
	id := r.snap("s", v.id)
	r.restart()
	wantCode(t, "stage again", v.stageErr(), codes.OK)
	wantCode(t, "publish again", v.publishErr(target, false), codes.OK)
	if info, err := r.d.mounts.Look(r.ctx, target); err != nil || info.Layers != 1 {
		t.Errorf("target shows %+v, %v, want one layer", info, err)
	}
	wantCode(t, "publish with other arguments", v.publishErr(target, true), codes.AlreadyExists)
	if got, err := r.GetSnapshot(r.ctx, &csi.GetSnapshotRequest{SnapshotId: id}); err != nil || got.GetSnapshot().GetSourceVolumeId() != v.id {
		t.Errorf("GetSnapshot = %v, %v", got, err)
	}
	if again := r.create(createReq("v", 64*mib, fsCap("", multi))); again.id != v.id {
		t.Errorf("create again = %s, want %s", again.id, v.id)
	}
}

// Nothing stays attached over a reboot, so the record of an attachment must not count either.
func TestRecordOfAnotherBootIsVoid(t *testing.T) {
	r := newRig(t)
	v := r.create(directoryReq("v"))
	v.up()
	v.down()
	a := attachment{
		Version: recordVersion, ID: v.id, BootID: "another", Stage: &stage{Path: v.staging()},
		Targets: map[string]publication{r.path("t"): {}},
	}
	if err := r.d.store.write(attachedDir, v.id, a, volatile); err != nil {
		t.Fatal(err)
	}
	r.restart()
	if got := r.d.store.attachment(v.id); !got.empty() {
		t.Errorf("attachment of another boot was kept: %+v", got)
	}
	v.up()
}

// A record that cannot be read is evidence that must not be lost: the driver does nothing
// to its volume, makes nothing in its place, and serves the others.
func TestUnreadableRecordHarmsNobody(t *testing.T) {
	for what, damage := range map[string]func(b []byte) []byte{
		"empty":         func([]byte) []byte { return nil },
		"truncated":     func(b []byte) []byte { return b[:len(b)/2] },
		"of another":    func(b []byte) []byte { return []byte(strings.Replace(string(b), `"id":"lv-`, `"id":"xx-`, 1)) },
		"newer":         func(b []byte) []byte { return []byte(strings.Replace(string(b), `"version":1`, `"version":2`, 1)) },
		"of no type":    func(b []byte) []byte { return []byte(strings.Replace(string(b), `"directory"`, `"directori"`, 1)) },
		"in no phase":   func(b []byte) []byte { return []byte(strings.Replace(string(b), `"ready"`, `"reade"`, 1)) },
		"not an object": func([]byte) []byte { return []byte("[1]") },
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t)
			v, other := r.create(directoryReq("v")), r.create(directoryReq("other"))
			r.stop()
			path := r.path("state", recordsDir, v.id+".json")
			good, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			mustWrite(t, path, string(damage(good)))
			r.start()
			_, deleteErr := r.DeleteVolume(r.ctx, &csi.DeleteVolumeRequest{VolumeId: v.id})
			_, createErr := r.CreateVolume(r.ctx, directoryReq("v"))
			wantCode(t, "delete", deleteErr, codes.DataLoss)
			wantCode(t, "create the same name", createErr, codes.DataLoss)
			wantCode(t, "stage", v.stageErr(), codes.DataLoss)
			wantCode(t, "unstage", v.unstageErr(), codes.DataLoss)
			if _, err := os.Stat(r.d.store.dataPath(v.id, typeDirectory)); err != nil {
				t.Errorf("data is gone: %v", err)
			}
			other.up()
			r.stop()
			mustWrite(t, path, string(good))
			r.start()
			v.up()
		})
	}
}

func TestUnfinishedWritesAreRemovedAtStart(t *testing.T) {
	r := newRig(t)
	r.stop()
	left := r.path("state", recordsDir, "lv-x.json.tmp")
	mustWrite(t, left, "{")
	r.start()
	wantGone(t, left)
}

func TestStateDirectoryHasOneDriver(t *testing.T) {
	r := newRig(t)
	d, err := New(Config{NodeID: "node-2", StateDir: r.path("state")})
	if err == nil {
		d.Close()
		t.Fatal("a second driver opened the same state directory")
	}
	if !strings.Contains(err.Error(), "in use") {
		t.Errorf("error %v does not say why", err)
	}
}

func TestNodeIDIsRequired(t *testing.T) {
	if _, err := New(Config{StateDir: t.TempDir()}); err == nil {
		t.Error("New worked without a node id")
	}
}

// An id from outside reaches a path only as its hash (rule 8).
func TestIDsNeverLeaveTheStateDirectory(t *testing.T) {
	for _, id := range []string{"../../etc/passwd", "/etc/passwd", "lv-../x", "a\x00b", strings.Repeat("x", 4096), ".", "..", ""} {
		if key := fileKey(id); filepath.Base(key) != key || !strings.HasPrefix(key, "inline-") {
			t.Errorf("fileKey(%q) = %q", id, key)
		}
	}
	if id := newID("lv", "name"); fileKey(id) != id {
		t.Errorf("fileKey(%q) = %q, want itself", id, fileKey(id))
	}
}
