package storageid

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// machine writes a machine id and returns the file.
func machine(t *testing.T, id string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "machine-id")
	must(t, os.WriteFile(path, []byte(id), 0o600))
	return path
}

const (
	idOne = "3d1219c7c4c5404aaa1f6d2a48adfda4\n"
	idTwo = "00112233445566778899aabbccddeeff\n"
)

// start is one start of a daemon on a state directory. use may change the journal.
func start(t *testing.T, dir, flag, machineFile string, use func(*journal.Bolt)) (id, missing string, k *Keeper, err error) {
	t.Helper()
	k, err = Open(dir)
	must(t, err)
	b, err := journal.OpenBolt(filepath.Join(dir, "state.db"))
	must(t, err)
	if use != nil {
		use(b)
	}
	id, missing, err = k.Chooser(Config{Journal: b, Flag: flag, MachineFile: machineFile, Logger: slog.New(slog.DiscardHandler)})(t.Context())
	must(t, b.Close())
	return id, missing, k, err
}

// The id of a new node follows from the machine's, and outlasts the loss of the journal, of the file, and of the
// machine's id.
func TestTheIDIsChosenOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	want, err := FromMachine(machine(t, idOne))
	must(t, err)
	expect := func(what, machineFile string, problems int) {
		t.Helper()
		id, missing, k, err := start(t, dir, "", machineFile, nil)
		if err != nil || missing != "" || id != want || len(k.Problems()) != problems {
			t.Errorf("%s: %q, %q, %v, %v, want %q", what, id, missing, k.Problems(), err, want)
		}
	}
	expect("new", machine(t, idOne), 0)
	expect("again", machine(t, idOne), 0)
	expect("another machine", machine(t, idTwo), 1)
	expect("no machine", machine(t, "uninitialized\n"), 0)
	for _, lost := range []string{"state.db", "state.db.spare"} {
		must(t, os.Rename(filepath.Join(dir, lost), filepath.Join(dir, "away."+lost)))
	}
	expect("a lost journal", machine(t, idTwo), 1)
	must(t, os.Remove(filepath.Join(dir, File)))
	expect("a lost file", machine(t, idTwo), 1)
	must(t, os.WriteFile(filepath.Join(dir, File), []byte(`{"chosen":{"id":"x","from":"operator"},"crc":"00000000"}`), 0o600))
	expect("a damaged file", machine(t, idTwo), 1)
	if got := Read(dir); got.Chosen == nil || got.Chosen.ID != want {
		t.Errorf("the damaged file was not written anew: %+v", got)
	}
	if _, _, _, err := start(t, dir, "other", machine(t, idOne), nil); !errors.Is(err, ErrContradicted) || !strings.Contains(err.Error(), want) {
		t.Errorf("another id by flag: %v", err)
	}
	if id, _, k, err := start(t, dir, want, machine(t, idTwo), nil); err != nil || id != want || len(k.Problems()) != 0 {
		t.Errorf("the id by flag: %q, %v, %v", id, k.Problems(), err)
	}
	expect("once told of the machine", machine(t, idTwo), 0)
}

// A machine without an id is asked for one, and the node is no earlier version's because of that.
func TestAMachineWithoutAnIDIsAsked(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "uninitialized": "uninitialized\n", "zero": strings.Repeat("0", 32) + "\n", "short": "3d12\n", "long": strings.TrimSpace(idOne) + "00\n", "text": strings.Repeat("x", 32),
	} {
		dir := filepath.Join(t.TempDir(), "state")
		for range 2 {
			id, missing, k, err := start(t, dir, "", machine(t, text), nil)
			if err != nil || id != "" || !strings.Contains(missing, "--storage-id=") || len(k.Problems()) != 1 {
				t.Errorf("%s: %q, %q, %v, %v", name, id, missing, k.Problems(), err)
			}
		}
		if id, missing, _, err := start(t, dir, "", machine(t, idOne), nil); err != nil || id == "" || missing != "" {
			t.Errorf("%s: a machine id that comes later gives %q, %q, %v", name, id, missing, err)
		}
	}
	dir := filepath.Join(t.TempDir(), "state")
	if _, missing, _, err := start(t, dir, "", "/nowhere", nil); err != nil || missing == "" {
		t.Errorf("no file: %q, %v", missing, err)
	}
	if id, missing, _, err := start(t, dir, "rack-7", "/nowhere", nil); err != nil || id != "rack-7" || missing != "" {
		t.Errorf("the operator's: %q, %q, %v", id, missing, err)
	}
}

// An id that is not durable is in no name; one that is goes on while it cannot be written again.
func TestAnIDIsDurableBeforeANameHasIt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	block := func(*journal.Bolt) { must(t, os.Mkdir(filepath.Join(dir, File+".new"), 0o700)) }
	id, missing, k, err := start(t, dir, "", machine(t, idOne), block)
	if err != nil || id != "" || !strings.Contains(missing, "cannot be written") || len(k.Problems()) != 1 {
		t.Errorf("%q, %q, %v, %v", id, missing, k.Problems(), err)
	}
	must(t, os.Remove(filepath.Join(dir, File+".new")))
	want, _, _, err := start(t, dir, "", machine(t, idOne), nil)
	if err != nil || want == "" {
		t.Fatal(want, err)
	}
	must(t, os.Remove(filepath.Join(dir, File)))
	if id, missing, k, err := start(t, dir, "", machine(t, idOne), block); err != nil || id != want || missing != "" || len(k.Problems()) != 1 {
		t.Errorf("recorded: %q, %q, %v, %v", id, missing, k.Problems(), err)
	}
}

// An id that neither place has any more is not guessed: an operator says which it was.
func TestALostIDIsAskedFor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	damage := func(b *journal.Bolt) {
		must(t, b.CommitBucket(context.Background(), Bucket, map[string][]byte{key: []byte("torn")}))
		must(t, os.WriteFile(filepath.Join(dir, File), []byte("torn"), 0o600))
	}
	if _, missing, _, err := start(t, dir, "", machine(t, idOne), damage); err != nil || !strings.Contains(missing, "is lost (the journal: ") {
		t.Errorf("%q, %v", missing, err)
	}
	for range 2 {
		if id, missing, _, err := start(t, dir, "rack-7", machine(t, idOne), nil); err != nil || id != "rack-7" || missing != "" {
			t.Errorf("%q, %q, %v", id, missing, err)
		}
	}
}

// older writes the journal of an older program into a new state directory.
func older(t *testing.T) string {
	t.Helper()
	f, err := os.Open("../../journal/testdata/state-ff69975.db.gz")
	must(t, err)
	defer f.Close()
	packed, err := gzip.NewReader(f)
	must(t, err)
	b, err := io.ReadAll(packed)
	must(t, err)
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "state.db"), b, 0o600))
	return dir
}

// A node that an earlier version used has no storage id for ever, also after its journal is lost; before this
// version saw it, too.
func TestAnEarlierVersionsNodeHasNone(t *testing.T) {
	none := func(what, dir string) {
		t.Helper()
		if id, missing, k, err := start(t, dir, "", machine(t, idOne), nil); err != nil || id != "" || missing != "" || len(k.Problems()) != 0 {
			t.Errorf("%s: %q, %q, %v, %v", what, id, missing, k.Problems(), err)
		}
	}
	dir := older(t)
	none("upgraded", dir)
	none("again", dir)
	for _, lost := range []string{"state.db", "state.db.spare"} {
		must(t, os.Remove(filepath.Join(dir, lost)))
	}
	none("a lost journal", dir)
	must(t, os.Remove(filepath.Join(dir, File)))
	none("a lost file", dir)

	dir = t.TempDir() // its journal was lost before the upgrade, and its lock stays
	must(t, os.WriteFile(filepath.Join(dir, "state.db.lock"), []byte("1\n"), 0o600))
	none("lost before", dir)

	volume := func(b *journal.Bolt) {
		must(t, b.CommitBucket(context.Background(), controller.Bucket, map[string][]byte{"default/a": []byte("{}")}))
	}
	if _, _, _, err := start(t, older(t), "rack-7", machine(t, idOne), volume); !errors.Is(err, ErrContradicted) {
		t.Errorf("an id for a node with volumes: %v", err)
	}
	if id, _, _, err := start(t, older(t), "rack-7", machine(t, idOne), nil); err != nil || id != "rack-7" {
		t.Errorf("an id for a node without records: %q, %v", id, err)
	}
}

// systemd makes the same id of the machine's, and it does not tell the machine's.
func TestTheIDIsWhatSystemdMakesOfTheMachines(t *testing.T) {
	id, err := FromMachine(machine(t, idOne))
	if err != nil || id != "e85d0f5bb49748ac8172eac72a218055" || bytes.Contains([]byte(idOne), []byte(id[:8])) {
		t.Errorf("%q, %v", id, err)
	}
	own, err := FromMachine(MachineFile)
	if errors.Is(err, errNoMachine) {
		t.Skip("this machine has no id: ", err)
	}
	must(t, err)
	program, err := exec.LookPath("systemd-id128")
	if err != nil {
		t.Skip("systemd-id128 is not installed")
	}
	out, err := exec.CommandContext(t.Context(), program, "machine-id", "--app-specific="+application).Output()
	if err != nil || strings.TrimSpace(string(out)) != own {
		t.Errorf("systemd says %q, %v, want %q", out, err, own)
	}
}
