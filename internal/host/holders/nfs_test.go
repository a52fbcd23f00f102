package holders

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
)

// Mounts of one server's directories have one device, and the kernel shows the root "/" for
// each. Which of them show a volume, and which files are in it, has the same answer as on a
// disk: a file on /mnt/home of the server is not in a volume beside it.
func TestExportsOfAServerAreToldApart(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	dirs := []string{"/vol", "/vol/a", "/vol/a/b", "/home", "/volume", "/"}
	for range 500 {
		var disk, nfs strings.Builder
		disk.WriteString("1 0 8:1 / / rw - ext4 /dev/vda rw\n")
		nfs.WriteString(disk.String())
		n := 2 + r.IntN(8)
		for i := range n {
			dir := dirs[r.IntN(len(dirs))]
			fmt.Fprintf(&disk, "%d 1 8:16 %s /mnt/%d rw - ext4 /dev/sdb rw\n", i+2, dir, i)
			fmt.Fprintf(&nfs, "%d 1 0:40 / /mnt/%d rw - nfs4 nas:%s rw\n", i+2, i, dir)
		}
		on, file := r.IntN(n), r.IntN(n)
		paths := []string{"/f", "/a/f", "/vol/f", "/vol/a/b/f", "/home/f"}
		p := fmt.Sprintf("/mnt/%d%s", file, paths[r.IntN(len(paths))])
		var answers [2]string
		for i, text := range []string{disk.String(), nfs.String()} {
			rows, err := mount.ParseTable([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			of := newTable(rows, "/", treesAt(rows, fmt.Sprintf("/mnt/%d", on)), nil)
			at := of.spots(fmt.Sprintf("/mnt/%d", on))
			answers[i] = fmt.Sprint(of.mounts(nil), of.matches(p, uint64(file)+2), of.matches(p, 0), len(at))
		}
		if answers[0] != answers[1] {
			t.Fatalf("mounts of what is at /mnt/%d, and whether %s is in it: on a disk %s, of a server %s\n%s", on, p, answers[0], answers[1], nfs.String())
		}
	}
}
