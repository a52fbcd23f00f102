package audit

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func clock() func() time.Time {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return func() time.Time { return at }
}

func TestAnActIsInTheLogBeforeItIsDone(t *testing.T) {
	dir := t.TempDir()
	l := Open(dir, clock())
	act := Act{By: By{UID: 7, PID: 8}, Verb: "forget", Object: "d^v", Reason: "the array is gone"}
	var during []Line
	err := l.Do(act, func() (string, error) {
		var err error
		during, err = l.Lines()
		return "dropped", err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(during) != 1 || during[0].Begins == nil || *during[0].Begins != act {
		t.Errorf("while it was done the log said %+v", during)
	}
	lines, err := l.Lines()
	if err != nil || len(lines) != 2 || !lines[1].Done || lines[1].Result != "dropped" || lines[1].Act != lines[0].Act {
		t.Errorf("after it the log said %+v, %v", lines, err)
	}
	st, err := os.Stat(filepath.Join(dir, Name))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
}

// Changes of objects go to a log of their own, one line each, and take no room from the
// acts of operators.
func TestNotesAreInALogOfTheirOwn(t *testing.T) {
	dir := t.TempDir()
	l := Open(dir, clock())
	if err := l.Do(Act{Verb: "forget"}, func() (string, error) { return "", nil }); err != nil {
		t.Fatal(err)
	}
	act := Act{By: By{UID: 7}, Verb: "apply", Object: "web.yaml"}
	for range 2 {
		if err := l.Note(act, "created pod default/web", nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Note(Act{Verb: "delete pod"}, "", errors.New("not found")); err != nil {
		t.Fatal(err)
	}
	lines, err := l.notes.lines()
	if err != nil || len(lines) != 3 || *lines[0].Begins != act || !lines[0].Done || lines[0].Result != "created pod default/web" ||
		lines[1].Act == lines[0].Act || lines[2].Done || lines[2].Error != "not found" {
		t.Errorf("%+v, %v", lines, err)
	}
	if lines, err := l.Lines(); err != nil || len(lines) != 2 {
		t.Errorf("the log of acts: %+v, %v", lines, err)
	}
}

func TestAnActThatFailsIsToldWithItsError(t *testing.T) {
	l := Open(t.TempDir(), clock())
	boom := errors.New("still mounted")
	if err := l.Do(Act{Verb: "forget"}, func() (string, error) { return "", boom }); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
	lines, err := l.Lines()
	if err != nil || len(lines) != 2 || lines[1].Done || lines[1].Error != "still mounted" {
		t.Errorf("the log said %+v, %v", lines, err)
	}
}

func TestNothingIsDoneWithoutTheLog(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, Name), 0o700); err != nil { // so that no file can be there
		t.Fatal(err)
	}
	err := Open(dir, clock()).Do(Act{Verb: "forget"}, func() (string, error) { t.Error("it was done"); return "", nil })
	if err == nil || !strings.Contains(err.Error(), "nothing was done") {
		t.Errorf("got %v", err)
	}
	dir = t.TempDir()
	if err := os.Symlink(filepath.Join(t.TempDir(), "else"), filepath.Join(dir, Name)); err != nil {
		t.Fatal(err)
	}
	if err := Open(dir, clock()).Do(Act{Verb: "forget"}, func() (string, error) { t.Error("it was done"); return "", nil }); err == nil {
		t.Error("a link was followed")
	}
}

func TestALineThatACrashCutOffHarmsNoOther(t *testing.T) {
	dir := t.TempDir()
	l := Open(dir, clock())
	nop := func() (string, error) { return "", nil }
	if err := l.Do(Act{Verb: "drain"}, nop); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, Name)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data[:len(data)-5], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Open(dir, clock()).Do(Act{Verb: "undrain"}, nop); err != nil {
		t.Fatal(err)
	}
	lines, err := l.Lines()
	if err != nil || len(lines) != 3 || lines[0].Begins.Verb != "drain" || lines[1].Begins.Verb != "undrain" || !lines[2].Done {
		t.Errorf("got %+v, %v", lines, err)
	}
}

func TestTheLogIsBounded(t *testing.T) {
	dir := t.TempDir()
	l := Open(dir, clock())
	if err := os.WriteFile(filepath.Join(dir, Name), bytes.Repeat([]byte("x\n"), maxBytes/2), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range maxOld {
		if err := os.WriteFile(l.acts.old(i+1), []byte{byte('0' + i + 1), '\n'}, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Do(Act{Verb: "drain", Reason: strings.Repeat("é", maxText)}, func() (string, error) { return "", nil }); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"x\n", "1\n", "2\n", "3\n"} {
		got, err := os.ReadFile(l.acts.old(i + 1))
		if err != nil || !bytes.HasPrefix(got, []byte(want)) {
			t.Errorf("file %d begins with %q, %v; want %q", i+1, got[:2], err, want)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != maxOld+1 {
		t.Errorf("%d files, %v; want %d", len(entries), err, maxOld+1)
	}
	st, err := os.Stat(filepath.Join(dir, Name))
	if err != nil || st.Size() > 2*maxText {
		t.Errorf("the new file has %d bytes, %v", st.Size(), err)
	}
}

func TestActsAtOneMomentAreTold(t *testing.T) {
	l := Open(t.TempDir(), clock())
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if err := l.Do(Act{Verb: "retry"}, func() (string, error) { return "", nil }); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	lines, err := l.Lines()
	if err != nil {
		t.Fatal(err)
	}
	begun, done := map[int64]bool{}, map[int64]bool{}
	for _, line := range lines {
		if line.Begins != nil {
			begun[line.Act] = true
		} else {
			done[line.Act] = line.Done && begun[line.Act]
		}
	}
	if len(begun) != 20 || len(done) != 20 {
		t.Errorf("%d begun, %d done; want 20 of each", len(begun), len(done))
	}
	for id, ok := range done {
		if !ok {
			t.Errorf("act %d ended before it began", id)
		}
	}
}

func TestThePeerIsNamed(t *testing.T) {
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	by := Peer(0, int32(os.Getpid()))
	if by.Program != strings.TrimSpace(string(comm)) {
		t.Errorf("got %+v", by)
	}
	if gone := Peer(5, 1<<30); gone.Program != "" || gone.UID != 5 {
		t.Errorf("without a caller: %+v", gone)
	}
}

// A file that is moved away or removed while it is open, as by logrotate, gets no more lines.
func TestTheFileAtThePathGetsTheLine(t *testing.T) {
	dir := t.TempDir()
	l := Open(dir, clock())
	note := func(verb string) {
		t.Helper()
		if err := l.Note(Act{Verb: verb}, "", nil); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, NotesName)
	note("one")
	note("two")
	if err := os.Rename(path, path+"-old"); err != nil {
		t.Fatal(err)
	}
	note("three")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	note("four")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	note("five")
	for name, want := range map[string]string{path + "-old": "one two", path: "four five"} {
		lines, err := readLines(name)
		var got []string
		for _, line := range lines {
			got = append(got, line.Begins.Verb)
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s has %q, %v; want %q", name, got, err, want)
		}
	}
}

// A write that failed in the middle of a line, as on a full disk, spoils no later line.
func TestALineThatCouldNotBeWrittenHarmsNoOther(t *testing.T) {
	l := Open(t.TempDir(), clock())
	if err := l.Note(Act{Verb: "one"}, "", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := l.notes.open.WriteString(`{"act":`); err != nil {
		t.Fatal(err)
	}
	whole := l.notes.open
	var err error
	if l.notes.open, err = os.Open(l.notes.path); err != nil { // it is open for reading only
		t.Fatal(err)
	}
	if err := l.Note(Act{Verb: "two"}, "", nil); err == nil {
		t.Fatal("a line was written to a file that takes none")
	}
	if err := errors.Join(whole.Close(), l.Note(Act{Verb: "three"}, "", nil)); err != nil {
		t.Fatal(err)
	}
	lines, err := l.notes.lines()
	if err != nil || len(lines) != 2 || lines[1].Begins.Verb != "three" {
		t.Errorf("got %+v, %v", lines, err)
	}
}
