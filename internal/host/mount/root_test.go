package mount

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// network are the types that mounts are generated for, and how the kernel shows a directory
// of each (test/vm/guest compares): the root and the source of a line of mountinfo.
var network = map[string]func(server int, dir string) (root, source string){
	"nfs":  func(n int, dir string) (string, string) { return "/", fmt.Sprintf("10.0.0.%d:%s", n, dir) },
	"nfs4": func(n int, dir string) (string, string) { return "/", fmt.Sprintf("[fd00::%d]:%s", n, dir) },
	"cifs": func(n int, dir string) (string, string) { return dir, fmt.Sprintf("//nas%d/share", n) },
	"ext4": func(n int, dir string) (string, string) { return dir, fmt.Sprintf("/dev/sd%c", 'a'+n) },
}

// shown is a directory of a server, mounted at a path.
type shown struct {
	server    int
	dir, path string
}

// generate returns mounts of a few directories of a few servers, some within others.
func generate(r *rand.Rand) (all []shown) {
	dirs := []string{"/", "/vol", "/vol/a", "/vol/a/b", "/volume", "/home", "/it's a:/dir"}
	for n := range 2 + r.IntN(12) {
		all = append(all, shown{r.IntN(2), dirs[r.IntN(len(dirs))], fmt.Sprintf("/mnt/%d", n)})
	}
	return all
}

// text is the mount table of these mounts as the kernel writes it.
func text(fsType string, all []shown) []byte {
	var b strings.Builder
	b.WriteString("1 0 8:1 / / rw - ext4 /dev/vda rw\n")
	for i, m := range all {
		root, source := network[fsType](m.server, m.dir)
		fmt.Fprintf(&b, "%d 1 0:%d %s %s rw - %s %s rw\n", i+2, 40+m.server, escape(root), m.path, fsType, escape(source))
	}
	return []byte(b.String())
}

// Which mounts show the same directory has the same answer on each file system, whether the
// kernel shows a mount's root, as of most, or hides it, as of nfs: a mount of another
// directory of a server is another one.
func TestTheMountsOfOneDirectoryAreFoundOnEachFileSystem(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		all := generate(r)
		at := all[r.IntN(len(all))]
		var want []string
		for _, m := range all {
			if m.server == at.server && m.dir == at.dir {
				want = append(want, m.path)
			}
		}
		for fsType := range network {
			rows, err := parseMountinfo(text(fsType, all))
			must(t, err)
			entries, refs := make([]Entry, len(rows)), []string{at.path}
			f := tableOf{entries: map[uint64]Entry{}}
			for i, r := range rows {
				entries[i] = r.entry()
				entries[i].ID = r.id + 1000
				f.entries[r.id+1000] = entries[i]
			}
			refs = append(refs, refsOf(at.path, entries)...)
			var same, known []string
			for _, e := range sameAs(at.path, slices.Clone(entries)) {
				same = append(same, e.Path)
			}
			ids, err := f.origins().same(entries[slices.IndexFunc(entries, func(e Entry) bool { return e.Path == at.path })])
			must(t, err)
			for _, id := range ids {
				known = append(known, f.entries[id].Path)
			}
			for what, got := range map[string][]string{"in the table": same, "references": refs, "by ids": known} {
				slices.Sort(got)
				if slices.Sort(want); !slices.Equal(got, want) {
					t.Fatalf("%s, mounts of what is at %s %s: got %q, want %q\n%s", fsType, at.path, what, got, want, text(fsType, all))
				}
			}
		}
	}
}

// What a mount of nfs shows is the path on the server, with any name of the server.
func TestTheRootOfNFSIsInItsSource(t *testing.T) {
	for _, c := range []struct{ fsType, shown, source, want string }{
		{"nfs4", "/", "nas:/vol", "/vol"},
		{"nfs4", "/", "nas:/", "/"},
		{"nfs", "/", "[fe80::1%eth0]:/vol/a", "/vol/a"},
		{"nfs", "/", "nas://vol//a/", "/vol/a"},
		{"nfs4", "/", "nas:/a:/b", "/a:/b"},
		{"nfs4", "/", "", "/"},
		{"nfs", "/", "nas:vol", "/"},
		{"cifs", "/a", "//nas:/share", "/a"},
		{"fuse.sshfs", "/", "nas:/vol", "/"},
		{"9p", "/", "tag:/vol", "/"},
	} {
		if got := rootOf(c.fsType, c.shown, c.source); got != c.want {
			t.Errorf("%s of %q: got %q, want %q", c.fsType, c.source, got, c.want)
		}
	}
}

// The answer of statmount about a mount of nfs has its root, with Linux 6.13 and later. Of
// Linux 6.8 to 6.12, which has no source there, the root comes from mountinfo by the mount's
// small id; until then it is not taken for another mount's.
func TestTheRootOfNFSIsKnownOnEachKernel(t *testing.T) {
	words := make([]uint64, 80)
	h := headerOf(words)
	strs := append([]byte{0}, "nfs4\x00/\x00nas:/vol\x00/mnt\x00"...)
	for i, b := range strs {
		words[statmountHeaderSize/8+i/8] |= uint64(b) << (i % 8 * 8)
	}
	h.MntID, h.FSType, h.MntRoot, h.SBSource, h.MntPoint = 5, 1, 6, 8, 17
	h.Mask = statmountAll
	if e := decodeStatmount(words); e.Root != "/vol" || e.Source != "nas:/vol" || e.lacksRoot() {
		t.Errorf("got %+v", e)
	}
	h.Mask &^= statmountSource
	e := decodeStatmount(words)
	if _, err := newOrigins().same(e); e.Root != "/" || err != errRootHidden {
		t.Errorf("without a source: %+v, %v", e, err)
	}
	rows, err := parseMountinfo([]byte("31 1 0:40 / /mnt rw - nfs4 nas:/home rw\n32 1 0:40 / /mnt rw - nfs4 nas:/vol rw\n"))
	must(t, err)
	entries := []Entry{{FSType: "ext4", Root: "/d"}, e, {FSType: "nfs4", Root: "/", ID: 6}}
	small := func(id uint64) (uint64, error) {
		if id == 5 {
			return 32, nil
		}
		return 0, unix.ENOENT // unmounted meanwhile
	}
	if err := addRoots(entries, rows, small); err != nil || entries[1].Root != "/vol" || entries[0].Root != "/d" {
		t.Errorf("with mountinfo: %+v, %v", entries, err)
	}
}

// What is remembered of a mount tells its root where the source has it.
func TestMountsAreRememberedWithTheirSources(t *testing.T) {
	k := New()
	if !k.has(MountID) {
		t.Skip("this kernel has no statmount")
	}
	dir := scratch(t)
	id, mounted, err := k.mountAt(dir)
	if err != nil || !mounted {
		t.Fatal(mounted, err)
	}
	e, err := newOrigins().stat(id)
	if err != nil || e.FSType != "tmpfs" || e.Source != "scratch" && e.Source != "" {
		t.Errorf("got %+v, %v", e, err)
	}
	small, err := smallID(id)
	if err != nil || small != rowAt(t, dir).id {
		t.Errorf("the small id is %d, %v; mountinfo has %d", small, err, rowAt(t, dir).id)
	}
}
