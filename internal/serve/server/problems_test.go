package server

import (
	"strings"
	"testing"
)

// A state that does not fix itself is a problem, with its cause and where to look further. A state that is as wanted,
// or in progress, is none.
func TestWhatIsStuckIsAProblem(t *testing.T) {
	for name, c := range map[string]struct {
		of   Facts
		want []string // the first problem's object, and two parts of its message
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
