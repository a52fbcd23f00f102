//go:build !riscv64

package journal

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// disk is what a power cut may leave of a directory: all that was synced, and any part of
// what was done since, to the names and to each file. Names reach the disk in order, as in
// a file system's own journal; the sectors of a file in any order.
type disk struct {
	files   map[uint64]*diskFile
	names   map[string]uint64
	pending []event // of names
}

type diskFile struct {
	data    []byte
	pending []event
}

func (d *disk) do(e event) {
	switch {
	case e.entry != "":
		d.pending = append(d.pending, e)
	case e.sync && e.file == dirInode:
		d.names, d.pending = d.named(len(d.pending)), nil
	case e.sync:
		f := d.file(e.file)
		f.data, f.pending = f.with(func(int) bool { return true }), nil
	case e.ack == "":
		f := d.file(e.file)
		f.pending = append(f.pending, e)
	}
}

func (d *disk) file(ino uint64) *diskFile {
	if d.files[ino] == nil {
		d.files[ino] = &diskFile{}
	}
	return d.files[ino]
}

// named returns the names after the first changes of them have reached the disk.
func (d *disk) named(changes int) map[string]uint64 {
	names := maps.Clone(d.names)
	for _, e := range d.pending[:changes] {
		if e.file == 0 {
			delete(names, e.entry)
		} else {
			names[e.entry] = e.file
		}
	}
	return names
}

// with returns the file after the writes that has selects have reached the disk.
func (f *diskFile) with(has func(i int) bool) []byte {
	data := slices.Clone(f.data)
	for i, e := range f.pending {
		if !has(i) {
			continue
		}
		switch {
		case e.size < int64(len(data)):
			data = data[:e.size]
		case e.at >= 0 && int64(len(data)) < e.at*sector+int64(len(e.data)):
			data = append(data, make([]byte, e.at*sector+int64(len(e.data))-int64(len(data)))...)
		}
		if e.at >= 0 {
			copy(data[e.at*sector:], e.data)
		}
	}
	return data
}

// cuts calls try with directories as a power cut at this moment may leave them: with all,
// none and some of what is not synced; with every combination if there are few.
func (d *disk) cuts(t *testing.T, rng *rand.Rand, try func(dir string)) {
	const few, some = 6, 6
	units := 0
	for _, f := range d.files {
		units += len(f.pending)
	}
	masks := []func() bool{func() bool { return false }, func() bool { return true }}
	for n := range uint64(1) << min(units, few) {
		if units > few {
			break
		}
		bit := 0
		masks = append(masks, func() bool { bit++; return n&(1<<((bit-1)%few)) != 0 })
	}
	for range some {
		part := rng.Float64()
		masks = append(masks, func() bool { return rng.Float64() < part })
	}
	for changes := range len(d.pending) + 1 {
		for _, has := range masks {
			dir, names := t.TempDir(), d.named(changes)
			for _, name := range slices.Sorted(maps.Keys(names)) {
				write(t, filepath.Join(dir, name), d.file(names[name]).with(func(int) bool { return has() }))
			}
			try(dir)
			must(t, os.RemoveAll(dir))
		}
	}
}

// powerCutLife uses the journal as a daemon does, and prints what is durable as soon as it is.
func powerCutLife(t *testing.T, path string) {
	n := 0
	for range 3 {
		b, err := OpenBolt(path)
		must(t, err)
		for i := range 5 {
			n++
			v := sample(sampleID(n))
			changes := map[state.VolumeID]*state.Volume{v.ID: &v}
			if n > 4 {
				changes[sampleID(n-4)] = nil
			}
			must(t, b.Commit(t.Context(), changes))
			_, err := fmt.Printf("durable %d\n", n)
			must(t, err)
			if i == 3 {
				must(t, b.Spare(t.Context()))
			}
		}
		must(t, b.Close())
	}
}

// TestPowerCutChild is the process that TestNothingDurableIsLostInAPowerCut traces.
func TestPowerCutChild(t *testing.T) {
	if path := os.Getenv("CSI_VOLMGR_TEST_POWER"); path != "" {
		powerCutLife(t, path)
	}
}

// lostIn opens what a power cut left and says what is wrong with it; "" for nothing.
// durable is how many commits were reported durable; one more may be.
func lostIn(t *testing.T, dir string, durable int) string {
	b, err := OpenBolt(filepath.Join(dir, "state.db"))
	if err != nil {
		return err.Error()
	}
	defer b.Close()
	got, err := b.Load(t.Context())
	if err != nil || len(got.Quarantined) > 0 || got.Recovery.Why != "" {
		return fmt.Sprintf("%v, quarantined %v, %s", err, got.Quarantined, got.Recovery.Why)
	}
	have := slices.Sorted(maps.Keys(got.Volumes))
	for _, n := range []int{durable, durable + 1} {
		var want []state.VolumeID
		for i := max(1, n-3); i <= n; i++ {
			want = append(want, sampleID(i))
		}
		if slices.Sort(want); slices.Equal(have, want) {
			return ""
		}
	}
	return fmt.Sprintf("%d commits were durable, and there are %v", durable, have)
}

// A power cut keeps any part of a file's writes since the file's last sync, and of the
// changes of names since the directory's last sync. Every commit that was reported durable
// is there, whole, and the journal opens without its spare copy. The test also shows that
// it finds a loss: if syncs of the file, or of the directory, do nothing.
//
// Faults: A004.
func TestNothingDurableIsLostInAPowerCut(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestPowerCutChild$")
	cmd.Env = append(os.Environ(), "CSI_VOLMGR_TEST_POWER="+filepath.Join(dir, "state.db"))
	cmd.Stderr = os.Stderr
	log := trace(t, dir, cmd)
	for name, c := range map[string]struct {
		undone func(event) bool
		loses  bool
	}{
		"as it is":                   {func(event) bool { return false }, false},
		"files are not synced":       {func(e event) bool { return e.sync && e.file != dirInode }, true},
		"directories are not synced": {func(e event) bool { return e.sync && e.file == dirInode }, true},
	} {
		d := &disk{files: map[uint64]*diskFile{}, names: map[string]uint64{}}
		rng := rand.New(rand.NewPCG(1, 2))
		durable, tried, lost := 0, 0, ""
		for i, e := range log {
			if k, is := strings.CutPrefix(e.ack, "durable "); is {
				_, err := fmt.Sscan(k, &durable)
				must(t, err)
			}
			if e.sync || i == len(log)-1 { // just before a sync most may be lost
				d.cuts(t, rng, func(dir string) {
					tried++
					if problem := lostIn(t, dir, durable); lost == "" && problem != "" {
						lost = fmt.Sprintf("event %d of %d: %s", i, len(log), problem)
					}
				})
			}
			if lost != "" {
				break
			}
			if !c.undone(e) {
				d.do(e)
			}
		}
		if (lost != "") != c.loses || durable < 3 && !c.loses {
			t.Errorf("%s: %d power cuts over %d events, %d durable commits: lost: %q", name, tried, len(log), durable, lost)
		}
		t.Logf("%s: %d power cuts over %d events: %s", name, tried, len(log), lost)
	}
}
