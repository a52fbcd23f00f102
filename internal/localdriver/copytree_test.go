package localdriver

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
)

// A pod may replace a directory of its volume by a link while the driver copies the volume. A program
// that copies by paths must not get through such a link to files of the node.
func TestACopyOfADirectoryFollowsNoLink(t *testing.T) {
	r := newRig(t)
	v := r.create(directoryReq("v"))
	target := v.up()
	mustWrite(t, r.path("secret"), "of the node")
	mustWrite(t, target+"/file", "of the volume")
	links := map[string]string{"dir": r.dir, "up": "..", "file-link": "file"}
	for link, to := range links {
		if err := os.Symlink(to, filepath.Join(target, link)); err != nil {
			t.Fatal(err)
		}
	}
	useCopier(t, `cat "$from/dir/secret" >`+r.path("stolen")+` 2>&1`)
	restored := r.restore(r.snap("s", v.id), directoryReq("restored"))
	if stolen, err := os.ReadFile(r.path("stolen")); err != nil || string(stolen) == "of the node" {
		t.Errorf("through a link, the copying program read %q, %v", stolen, err)
	}
	wantFile(t, restored+"/file", "of the volume")
	for link, want := range links {
		if to, err := os.Readlink(filepath.Join(restored, link)); err != nil || to != want {
			t.Errorf("in the copy, link %s leads to %q, %v, want %q", link, to, err, want)
		}
	}
	v.down()
}

// useCopier makes the driver use a cp that first runs a shell command, in which $from is the directory
// to copy. The command does what cp does after it has taken a link for a directory.
func useCopier(t *testing.T, command string) {
	t.Helper()
	cp, err := exec.LookPath("cp")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	mustWrite(t, dir+"/cp", "#!/bin/sh\nfor arg; do from=$to; to=$arg; done\n"+command+"\nexec "+cp+" \"$@\"\n")
	if err := os.Chmod(dir+"/cp", 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// The id of an inline volume comes from the orchestrator. With the id of a snapshot, the volume would be the
// data of the snapshot, and be deleted with the pod.
func TestAnInlineVolumeIsNeverTheDataOfASnapshot(t *testing.T) {
	r := newRig(t)
	v := r.create(directoryReq("v"))
	mustWrite(t, v.up()+"/file", "text")
	snapshot := r.snap("s", v.id)
	for _, id := range []string{snapshot, newID("snap", "gone")} {
		_, err := r.NodePublishVolume(r.ctx, inlineReq(id, r.path("inline"), map[string]string{"type": "directory"}))
		wantCode(t, "an inline volume with an id of the driver", err, codes.InvalidArgument)
	}
	v.down()
	wantFile(t, r.restore(snapshot, directoryReq("restored"))+"/file", "text")
}
