package localdriver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

func hashOf(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// Data that this driver did not write may be the only copy: a pod used the volume as a raw
// block device before.
//
// Faults: A029.
func TestOnlyABlankImageIsFormatted(t *testing.T) {
	for what, offset := range map[string]int64{"at the start": 0, "in the middle": 20 * mib, "in the last block": 64*mib - 4096} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t)
			v := r.create(createReq("v", 64*mib, fsCap("", multi)))
			image := r.d.store.dataPath(v.id, typeImage)
			f, err := os.OpenFile(image, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt([]byte("precious"), offset); err != nil {
				t.Fatal(err)
			}
			f.Close()
			before := hashOf(t, image)
			wantCode(t, "stage", v.stageErr(), codes.FailedPrecondition)
			if hashOf(t, image) != before {
				t.Error("the image was written to")
			}
		})
	}
}

// An interrupted mkfs leaves half a file system in which nothing was ever stored.
func TestInterruptedFormatIsDoneAgain(t *testing.T) {
	r := newRig(t)
	v := r.create(createReq("v", 64*mib, fsCap("", multi)))
	record, err := r.d.mustVolume(v.id)
	if err != nil {
		t.Fatal(err)
	}
	record.Formatting = fsXFS
	if err := r.d.store.putVolume(record); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(r.d.store.dataPath(v.id, typeImage), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(bytes.Repeat([]byte("XFSB"), 1024)); err != nil {
		t.Fatal(err)
	}
	f.Close()
	mustWrite(t, v.up()+"/file", "text")
	if record, err = r.d.mustVolume(v.id); err != nil || record.Formatted != fsXFS || record.Formatting != "" {
		t.Errorf("record %+v, %v", record, err)
	}
}

// The driver never formats over a file system that it made, whatever became of it.
//
// Faults: A030.
func TestFormattedVolumeIsNeverFormattedAgain(t *testing.T) {
	r := newRig(t)
	v := r.create(createReq("v", 64*mib, fsCap("", multi)))
	mustWrite(t, v.up()+"/file", "text")
	v.down()
	image := r.d.store.dataPath(v.id, typeImage)
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	head := make([]byte, 1*mib)
	if _, err := f.ReadAt(head, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, mib), 0); err != nil {
		t.Fatal(err)
	}
	before := hashOf(t, image)
	if err := v.stageErr(); err == nil {
		t.Error("a volume whose superblock is gone was staged")
	}
	if hashOf(t, image) != before {
		t.Error("the image was written to")
	}
	if _, err := f.WriteAt(head, 0); err != nil {
		t.Fatal(err)
	}
	f.Close()
	wantFile(t, v.up()+"/file", "text")
}

// Two loop devices of one file system, both mounted, would destroy it.
func TestImageMountedElsewhereIsNotMountedAgain(t *testing.T) {
	r := newRig(t)
	v := r.create(createReq("v", 64*mib, fsCap("", multi)))
	v.up()
	// The driver forgets that the volume is staged, as if its records were lost.
	forgotten := r.d.store.attachment(v.id)
	if err := r.d.store.putAttachment(attachment{ID: v.id}); err != nil {
		t.Fatal(err)
	}
	other := v
	other.r = &rig{t: t, ctx: r.ctx, dir: r.path("other"), d: r.d, NodeClient: r.NodeClient}
	wantCode(t, "stage elsewhere", other.stageErr(), codes.Aborted)
	if err := r.d.store.putAttachment(forgotten); err != nil {
		t.Fatal(err)
	}
}

// A loop device that a killed driver left attached is reused, and no second one is made.
func TestLoopDeviceLeftBehindIsTakenOver(t *testing.T) {
	r := newRig(t)
	v := r.create(createReq("v", 64*mib, fsCap("", multi)))
	image := r.d.store.dataPath(v.id, typeImage)
	dev, err := loopFor(image, false)
	if err != nil {
		t.Fatal(err)
	}
	dev.Close()
	v.up()
	devs, err := findLoops(image)
	if err != nil || len(devs) != 1 {
		t.Errorf("image has %d loop devices, %v, want 1", len(devs), err)
	}
	closeLoops(devs)
	v.down()
	if devs, err = findLoops(image); err != nil || len(devs) != 0 {
		t.Errorf("image has %d loop devices after unstage, %v, want none", len(devs), err)
	}
}

func TestVolumeThatLostItsImageIsNotMadeAnew(t *testing.T) {
	r := newRig(t)
	v := r.create(createReq("v", 64*mib, fsCap("", multi)))
	v.up()
	v.down()
	image := r.d.store.dataPath(v.id, typeImage)
	if err := os.Remove(image); err != nil {
		t.Fatal(err)
	}
	if err := v.stageErr(); err == nil {
		t.Error("stage worked without the image")
	}
	wantGone(t, image)
}

// A call may end while resize2fs moves tables. Killed then, it leaves a file system that can no longer be mounted.
func TestTheEndOfACallDoesNotStopResize2fs(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(dir+"/moving", 0o600); err != nil {
		t.Fatal(err)
	}
	for tool, script := range map[string]string{"e2fsck": "", "resize2fs": "read line <" + dir + "/moving && echo $1 >" + dir + "/done"} {
		mustWrite(t, dir+"/"+tool, "#!/bin/sh\n"+script+"\n")
		if err := os.Chmod(dir+"/"+tool, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := growUnmounted(ctx, fsExt4, "/dev/x")
		ended <- err
	}()
	moving, err := os.OpenFile(dir+"/moving", os.O_WRONLY, 0) // returns once resize2fs runs
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := moving.WriteString("go on\n"); err != nil {
		t.Fatal(err)
	}
	moving.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	wantFile(t, dir+"/done", "/dev/x\n")
}
