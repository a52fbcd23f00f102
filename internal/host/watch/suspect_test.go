package watch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// fakeJournal says what Suspect read and wrote.
type fakeJournal struct {
	boot      string
	records   map[state.VolumeID]state.Volume
	failure   error
	loads     int
	suspected string
}

func (j *fakeJournal) BootID(context.Context) (string, error) { return j.boot, j.failure }

func (j *fakeJournal) Load(context.Context) (state.Loaded, error) {
	j.loads++
	return state.Loaded{Volumes: j.records, BootID: j.boot}, nil
}

func (j *fakeJournal) Suspect(_ context.Context, why string) error {
	j.suspected = why
	return nil
}

// Only a new journal is doubted, and only if a volume is mounted that it does not know. An old
// journal is not decoded: the manager does that, and each time costs a start with 1,000 volumes
// 40 ms of CPU.
func TestANewJournalThatLacksAMountIsDoubted(t *testing.T) {
	w := watcher(t)
	at := filepath.Join(w.Root, "pods/u/mount")
	if err := os.MkdirAll(at, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("x", at, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	stage := map[state.VolumeID]state.Volume{"v": {ID: "v", Spec: &state.Spec{StagePath: at}}}
	pod := map[state.VolumeID]state.Volume{"v": {
		ID: "v", Spec: &state.Spec{}, Mounts: map[state.PodUID]state.Mount{"u": {MountSpec: state.MountSpec{Target: at}}},
	}}
	other := map[state.VolumeID]state.Volume{"w": {ID: "w", Spec: &state.Spec{StagePath: "/w"}}}
	torn := errors.New("torn")
	for name, c := range map[string]struct {
		journal fakeJournal
		volume  bool // what is mounted has the path of a volume
		doubted bool
		loads   int
		err     error
	}{
		"no record":                {volume: true, doubted: true, loads: 1},
		"no path of a volume":      {loads: 1},
		"recorded as a stage":      {journal: fakeJournal{records: stage}, volume: true, loads: 1},
		"recorded as a pod's":      {journal: fakeJournal{records: pod}, volume: true, loads: 1},
		"the journal is older":     {journal: fakeJournal{boot: "b"}, volume: true},
		"the boot cannot be read":  {journal: fakeJournal{failure: torn}, volume: true, err: torn},
		"another volume's records": {journal: fakeJournal{records: other}, volume: true, doubted: true, loads: 1},
	} {
		place := func(path string) (state.Place, bool) { return state.Place{Path: path}, c.volume && path == at }
		err := w.Suspect(within(t), &c.journal, place)
		if !errors.Is(err, c.err) || (c.journal.suspected != "") != c.doubted || c.journal.loads != c.loads {
			t.Errorf("%s: %v, doubted %q, %d loads", name, err, c.journal.suspected, c.journal.loads)
		}
	}
}
