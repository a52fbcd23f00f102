package journal

import (
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// unpacked returns the content of a file of testdata.
func unpacked(t *testing.T, name string) []byte {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	must(t, err)
	defer f.Close()
	packed, err := gzip.NewReader(f)
	must(t, err)
	file, err := io.ReadAll(packed)
	must(t, err)
	return file
}

// A journal of an older program is read, and everything in its record is in the record that
// is written next. Commit ff69975 wrote the file from its sample, which sets every field;
// make upgrade replaces a whole program, with volumes mounted.
//
// Faults: A061.
func TestJournalOfAnOlderProgramIsReadAndKept(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		t.Skip("amd64 wrote the file: see TestAJournalOfTheOtherByteOrderIsNamedAndLeftAlone")
	}
	path := filepath.Join(t.TempDir(), "state.db")
	file := unpacked(t, "state-ff69975.db.gz")
	write(t, path, file)
	_, after, _ := strings.Cut(string(file), `"crc":"8ca62afe","record":`)
	var before any
	must(t, json.NewDecoder(strings.NewReader(after)).Decode(&before))

	b := openBolt(t, path)
	all, err := b.Load(t.Context())
	if err != nil || b.Recovery().Why != "" || all.BootID != "boot-1" || len(all.Quarantined) != 0 || len(all.Volumes) != 1 {
		t.Fatalf("%v, recovered %q: %+v", err, b.Recovery().Why, all)
	}
	record, err := EncodeRecord(all.Volumes["csi.example^vol-1"])
	if err != nil {
		t.Fatal(err)
	}
	var now struct{ Record any }
	must(t, json.Unmarshal(record, &now))
	lacks(t, "record", before, now.Record)
}

// lacks fails the test for everything in want that got lacks or has otherwise.
func lacks(t *testing.T, path string, want, got any) {
	t.Helper()
	fields, ok := want.(map[string]any)
	if !ok {
		if !reflect.DeepEqual(want, got) {
			t.Errorf("%s was %v, and is %v", path, want, got)
		}
		return
	}
	have, _ := got.(map[string]any)
	for name, value := range fields {
		lacks(t, path+"."+name, value, have[name])
	}
}
