package server

import (
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
)

// quarantinedPod is a pod whose volume's record cannot be read, before its driver has registered.
func quarantinedPod() Facts {
	f := quarantined()
	f.Drivers = nil
	p := manager.PodVolumeStatus{
		Names: []string{"data"}, ID: f.Volumes[0].Volume.ID, Driver: nfs, Code: plan.NoRecord,
		BlockedBy: "the volume's record in the journal cannot be read: record version 9",
	}
	f.Pods = []manager.PodStatus{{Pod: web, Listed: true, Volumes: []manager.PodVolumeStatus{p}}}
	return f
}

// The pod of a volume whose record cannot be read is a problem beside the volume, also before its driver registers. No
// explanation says that it goes on by itself.
func TestThePodOfAnUnreadableRecordIsAProblem(t *testing.T) {
	f := quarantinedPod()
	var of []string
	for _, p := range f.StuckProblems() {
		of = append(of, p.Object)
	}
	if want := []string{"pod default/web", "volume nfs.example.com^vol-1"}; !slices.Equal(of, want) {
		t.Errorf("problems of %q, want %q", of, want)
	}
	e, err := Explain(f, "pod", "default/web")
	if text := e.String(); err != nil || !strings.Contains(text, "csi-volmgr journal repair") || strings.Contains(text, "continues automatically") {
		t.Errorf("%v\n%s", err, text)
	}
}

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
