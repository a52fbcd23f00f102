package server

import (
	"strings"
	"testing"
)

// What will not mend itself is a problem, with its cause and where to look further, and
// what is as wanted, or under way, is none.
func TestWhatIsStuckIsAProblem(t *testing.T) {
	for name, c := range map[string]struct {
		of   Facts
		want []string // of each problem: its object, and what its message has
	}{
		"a record that cannot be read": {quarantined(), []string{"volume nfs.example.com^vol-1", "record version 9", "csi-volmgr explain volume 'nfs.example.com^vol-1'"}},
		"a refused expansion":          {expandRefused(), []string{"pod default/web", "NodeExpandVolume", "csi-volmgr explain pod web -n default"}},
		"as wanted":                    {AllFine(), nil},
		"content that is paced":        {contentKept(), nil},
	} {
		got := c.of.StuckProblems()
		if len(c.want) == 0 {
			if len(got) != 0 {
				t.Errorf("%s: %+v", name, got)
			}
			continue
		}
		if len(got) == 0 || got[0].Object != c.want[0] || !strings.Contains(got[0].Message, c.want[1]) || !strings.Contains(got[0].Message, c.want[2]) {
			t.Errorf("%s: got %+v, want %q", name, got, c.want)
		}
	}
}
