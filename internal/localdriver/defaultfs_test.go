package localdriver

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A node without mkfs.xfs makes volumes whose class names no file system as ext4, and says so. A volume that was created
// there is not too small for what is made when mkfs.xfs is installed before its first use.
func TestWithoutMkfsXFSAVolumeIsExt4(t *testing.T) {
	all := os.Getenv("PATH")
	few := t.TempDir()
	for _, name := range []string{"mkfs.ext4", "e2fsck", "resize2fs"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(few, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name, created, staged string
		bytes                 int64
		want                  string
	}{
		{"never", few, few, 64 * mib, fsExt4},
		{"installed before its first use", few, all, 64 * mib, fsXFS},
		{"installed, too small for xfs", few, all, 4 * mib, fsExt4},
		{"removed before its first use", all, few, 64 * mib, fsExt4},
	} {
		t.Run(test.name, func(t *testing.T) {
			var logged bytes.Buffer
			t.Cleanup(func() { // the driver has ended, and logs no more
				if !strings.Contains(logged.String(), "made="+test.want) {
					t.Errorf("the log does not say that %s is made:\n%s", test.want, logged.String())
				}
			})
			r := newRig(t)
			r.stop()
			r.log = []io.Writer{&logged}
			r.start()
			t.Setenv("PATH", test.created)
			v := r.create(createReq("v", test.bytes, fsCap("", multi)))
			t.Setenv("PATH", test.staged)
			mustWrite(t, v.up()+"/file", "text")
			record, err := r.d.mustVolume(v.id)
			if err != nil || record.Formatted != test.want || record.CapacityBytes != test.bytes {
				t.Errorf("%+v, %v; want %s of %d bytes", record, err, test.want, test.bytes)
			}
			t.Setenv("PATH", all)
			v.down()
		})
	}
}
