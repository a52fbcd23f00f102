package mount

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseRow(t *testing.T) {
	for _, c := range []struct {
		line string
		want row
	}{
		{
			`36 35 98:0 /mnt1 /mnt\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`,
			row{
				id: 36, parent: 35, dev: device(98, 0), root: "/mnt1", path: "/mnt 2", options: []string{"rw", "noatime"},
				fsType: "ext3", source: "/dev/root", superOptions: []string{"rw", "errors=continue"},
			},
		},
		{
			`1 1 0:5 / /a\134040b\011\012\043 ro shared:7 propagate_from:2 unbindable - fuse.x\040y  rw`,
			row{
				id: 1, parent: 1, dev: device(0, 5), root: "/", path: "/a\\040b\t\n#", options: []string{"ro"},
				shared: true, fsType: "fuse.x y", source: "", superOptions: []string{"rw"},
			},
		},
		{
			`1 2 0:5 / /- rw - tmpfs - rw`,
			row{
				id: 1, parent: 2, dev: device(0, 5), root: "/", path: "/-", options: []string{"rw"},
				fsType: "tmpfs", source: "-", superOptions: []string{"rw"},
			},
		},
	} {
		got, err := parseRow(c.line)
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(row{})); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", c.line, err, diff)
		}
	}
}

func TestRowsThatAreNoneAreErrors(t *testing.T) {
	for _, line := range []string{
		"", "1", "1 2 3:4 / / rw", "1 2 3:4 / / rw - tmpfs none", "x 2 3:4 / / rw - tmpfs none rw",
		"1 x 3:4 / / rw - tmpfs none rw", "1 2 34 / / rw - tmpfs none rw", "1 2 3:x / / rw - tmpfs none rw",
		"1 2 x:3 / / rw - tmpfs none rw", "1 2 99999999999:3 / / rw - tmpfs none rw",
	} {
		_, err := parseMountinfo([]byte("1 1 0:1 / / rw - t s rw\n" + line + "\n"))
		if err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%q: %v, want an error of line 2", line, err)
		}
	}
}

func FuzzParseMountinfo(f *testing.F) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(table)
	f.Add([]byte(`36 35 98:0 /mnt1 /mnt\0402 rw,noatime shared:1 - ext3 /dev/root rw` + "\n"))
	f.Add([]byte(`1 1 0:5 / /a\134040b\ rw - t  ` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		rows, err := parseMountinfo(data)
		if err != nil {
			return
		}
		// Rows written as the kernel writes them parse to the same rows.
		var b strings.Builder
		for _, r := range rows {
			tags := ""
			if r.shared {
				tags = " shared:1"
			}
			fmt.Fprintf(&b, "%d %d %d:%d %s %s %s%s - %s %s %s\n", r.id, r.parent, r.dev>>32, uint32(r.dev),
				escape(r.root), escape(r.path), strings.Join(r.options, ","), tags,
				escape(r.fsType), escape(r.source), strings.Join(r.superOptions, ","))
		}
		again, err := parseMountinfo([]byte(b.String()))
		if diff := cmp.Diff(rows, again, cmp.AllowUnexported(row{})); err != nil || diff != "" {
			t.Errorf("%q: %v\n%s", b.String(), err, diff)
		}
	})
}

func escape(s string) string {
	return strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`, "#", `\043`).Replace(s)
}
