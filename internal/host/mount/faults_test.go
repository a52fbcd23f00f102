package mount

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The mount table shows a file system that the kernel has made read-only after an error,
// and no other, by whatever sign this kernel gives.
//
// Faults: A101.
func TestFileSystemThatIsReadOnlyAfterAnErrorIsFound(t *testing.T) {
	dir := scratch(t)
	k := New()
	well, ill := mkdir(t, dir, "well"), mkdir(t, dir, "ill")
	must(t, k.Tmpfs(well, TmpfsOptions{}))
	image := filepath.Join(dir, "image")
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, 16<<20))
	if out, err := exec.Command("mkfs.ext4", "-q", image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v\n%s", err, out)
	}
	if out, err := exec.Command("mount", "-o", "loop,errors=remount-ro", image, ill).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v\n%s", err, out)
	}
	t.Cleanup(func() { must(t, unix.Unmount(ill, 0)) }) // and with it the loop device
	faults, err := k.Faults(t.Context(), dir)
	if err != nil || len(faults) > 0 {
		t.Fatalf("before the error: %v, %v", faults, err)
	}
	device := filepath.Base(rowAt(t, ill).source)
	if err := os.WriteFile("/sys/fs/ext4/"+device+"/trigger_fs_error", []byte("an error of the test"), 0); err != nil {
		t.Fatal(err)
	}
	if faults, err = k.Faults(t.Context(), dir); err != nil || len(faults) != 1 {
		t.Errorf("after the error: %v, %v; options %v", faults, err, rowAt(t, ill).superOptions)
	}
	if _, faulty := faults[ill]; !faulty {
		t.Errorf("found elsewhere: %v", faults)
	}
	if err := os.WriteFile(ill+"/f", nil, 0o600); err == nil {
		t.Error("it takes writes")
	}
	must(t, k.Tmpfs(ill, TmpfsOptions{})) // the file system that covers it is writable
	if faults, err = k.Faults(t.Context(), dir); err != nil || len(faults) > 0 {
		t.Errorf("covered: %v, %v", faults, err)
	}
	must(t, unix.Unmount(ill, 0))
}

// A look at a table of 2,000 healthy mounts allocates nothing per mount, and finds the same
// as a parser of the whole table.
func TestALookForErrorsCostsNothingForAMount(t *testing.T) {
	var table strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&table, "%d 1 0:5 / /pods/p%d rw,relatime shared:7 - ext4 /dev/a rw,errors=remount-ro\n", i, i)
	}
	for _, line := range []string{
		`1 1 0:5 / /pods/ill\040one rw - ext4 /dev/a rw,emergency_ro`, `2 1 0:5 / /pods/off rw - xfs /dev/a rw,shutdown,nouuid`,
		`3 1 0:5 / /pods/- rw - cifs //a/b ro,unc=a b`, `4 1 0:5 / /pods/covered rw - fuse.x  ro`, `5 4 0:6 / /pods/covered rw - tmpfs ro rw`,
		`6 1 0:5 / /elsewhere rw - ext4 /dev/a ro`, `7 1 0:5 / /pods/mount ro - ext4 /dev/a rw`,
	} {
		fmt.Fprintln(&table, line)
	}
	read := func() map[string]Fault {
		found, err := readFaults(strings.NewReader(table.String()), "/pods")
		must(t, err)
		return found
	}
	want := map[string]Fault{"/pods/ill one": {AfterError: true}, "/pods/off": {ShutDown: true}, "/pods/-": {}}
	if got := read(); !maps.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
	if allocs := testing.AllocsPerRun(10, func() { read() }); allocs > 200 {
		t.Errorf("%v allocations", allocs)
	}
	if _, err := readFaults(strings.NewReader("1 - tmpfs none ro\n"), "/pods"); err == nil {
		t.Error("what is no line of a mount table is read")
	}
}

func TestWhatMountOptionsSayOfErrors(t *testing.T) {
	for options, want := range map[string]Fault{
		"ro": {}, "rw,emergency_ro": {AfterError: true}, "rw,shutdown": {ShutDown: true},
	} {
		if got, faulty := faultOf(strings.Split(options, ",")); !faulty || got != want {
			t.Errorf("%s: %+v, %v", options, got, faulty)
		}
	}
	for _, options := range []string{"rw,relatime", "rw,errors=remount-ro"} {
		if got, faulty := faultOf(strings.Split(options, ",")); faulty {
			t.Errorf("%s: %+v", options, got)
		}
	}
}
