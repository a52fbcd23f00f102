package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func TestRecordComesBackAsItWas(t *testing.T) {
	for _, v := range []state.Volume{sample("csi.example^vol-1"), {ID: "v", Spec: &state.Spec{}}} {
		b, err := EncodeRecord(v)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeRecord(b)
		if err != nil {
			t.Fatalf("decode %s: %v", b, err)
		}
		if d := diff(v, got); d != "" {
			t.Errorf("record %s (-want +got):\n%s", b, d)
		}
	}
}

// A new field of the vocabulary without a value in sample would not be tested.
func TestSampleSetsEveryField(t *testing.T) {
	v := sample("id")
	// Mounted and BlockDevice are never set in the same Seen.
	v.Staged.BlockDevice = true
	v.Mounts = map[state.PodUID]state.Mount{"p1": v.Mounts["p1"]}
	unset(t, "Volume", reflect.ValueOf(v))
}

func unset(t *testing.T, name string, v reflect.Value) {
	if v.Kind() != reflect.Struct || v.Type().PkgPath() == "time" {
		if v.IsZero() {
			t.Errorf("%s is not set", name)
		}
		return
	}
	for i := range v.NumField() {
		if v.Type().Field(i).Name == "Stage" || v.Type().Field(i).Name == "Seen" {
			continue // Attach and Staged show the same types
		}
		if v.Type().Field(i).Tag.Get("json") == "-" {
			continue // in no record, on purpose
		}
		unset(t, name+"."+v.Type().Field(i).Name, v.Field(i))
	}
}

func TestRecordThatCannotBeReadSaysWhy(t *testing.T) {
	good, err := EncodeRecord(sample("v"))
	if err != nil {
		t.Fatal(err)
	}
	const phase = `{"id":"v","stage":{"phase":"gone"}}`
	for _, tc := range []struct{ name, record, want string }{
		{"empty", "", "not a record"},
		{"torn", string(good[:len(good)/2]), "not a record"},
		{"flipped", strings.Replace(string(good), "vol-1", "vol-2", 1), "checksum mismatch"},
		{"future", `{"v":2,"crc":"","record":{}}`, "newer csi-volmgr"},
		{"no such version", `{"v":-1,"record":{}}`, "does not exist"},
		{"no checksum", `{"v":1,"record":{"id":"v"}}`, "checksum mismatch"},
		{"phase", fmt.Sprintf(`{"v":1,"crc":"%08x","record":%s}`, crc32.Checksum([]byte(phase), castagnoli), phase), `phase "gone"`},
		{"no id", `{}`, "no id"},
		{"other JSON", `[1,2]`, "not a record"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := DecodeRecord([]byte(tc.record))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("decode %q: %v, want %q", tc.record, err, tc.want)
			}
		})
	}
}

func TestVersion0IsUpgraded(t *testing.T) {
	want := sample("v")
	bare, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeRecord(bare)
	if err != nil {
		t.Fatal(err)
	}
	got.Spec.Config = want.Spec.Config // json.Marshal escaped it
	if d := diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestFieldsOfANewerVersionAreIgnored(t *testing.T) {
	const record = `{"id":"v","colour":"blue"}`
	v, err := DecodeRecord(fmt.Appendf(nil, `{"v":1,"crc":"%08x","record":%s}`, crc32.Checksum([]byte(record), castagnoli), record))
	if err != nil || v.ID != "v" {
		t.Errorf("got %+v, %v", v, err)
	}
}

func TestSealedValueShowsEveryFlippedBit(t *testing.T) {
	sealed := seal([]byte("value"))
	for i := range len(sealed) * 8 {
		b := append([]byte{}, sealed...)
		b[i/8] ^= 1 << (i % 8)
		if v, err := unseal(b); err == nil {
			t.Fatalf("bit %d flipped: read as %q", i, v)
		}
	}
	if v, err := unseal(sealed); err != nil || string(v) != "value" {
		t.Fatalf("unseal: %q, %v", v, err)
	}
}

func FuzzRecord(f *testing.F) {
	good, err := EncodeRecord(sample("v"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"id":"v","stage":{"phase":"leaving"},"mounts":{"p":{"phase":"present","names":[]}}}`))
	f.Add([]byte(`{"v":1,"crc":"00000000","record":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if json.Valid(b) {
			// With a right checksum, so that the record itself is fuzzed.
			roundTrip(t, fmt.Appendf(nil, `{"v":1,"crc":"%08x","record":%s}`, crc32.Checksum(b, castagnoli), b))
		}
		roundTrip(t, b)
	})
}

func roundTrip(t *testing.T, b []byte) {
	v, err := DecodeRecord(b)
	if err != nil {
		return
	}
	again, err := EncodeRecord(v)
	if err != nil {
		t.Fatalf("encode %+v: %v", v, err)
	}
	got, err := DecodeRecord(again)
	if err != nil {
		t.Fatalf("decode %s: %v", again, err)
	}
	if len(v.Spec.Config) > 0 {
		// Encoding makes it compact.
		if got.Spec.Config, v.Spec.Config = nil, nil; !json.Valid(again) {
			t.Fatalf("not JSON: %s", again)
		}
	}
	if d := diff(v, got); d != "" {
		t.Fatal(d)
	}
}

// Encoding a record makes little garbage: a burst encodes each record twice. It makes 40 allocations, and
// 49 under the race detector, whose sync.Pool forgets a quarter of what it is given, at random.
func TestEncodingMakesLittleGarbage(t *testing.T) {
	v := sample("d^v")
	if n := testing.AllocsPerRun(100, func() { _, _ = EncodeRecord(v) }); n > 60 {
		t.Errorf("%v allocations", n)
	}
}

// TestARecordIsReadOnceWhereNothingIsWrong: the fast path reads a record of the current
// version, and none that differs from it in a byte.
func TestARecordIsReadOnceWhereNothingIsWrong(t *testing.T) {
	b, err := EncodeRecord(sample(sampleID(1)))
	if err != nil {
		t.Fatal(err)
	}
	if record, ok := intact(b, recordVersion); !ok || !json.Valid(record) {
		t.Errorf("%s is read twice", b)
	}
	if _, ok := intact(b, recordVersion+1); ok { // a record of an older version needs its upgrade
		t.Errorf("version %d is read as the next", recordVersion)
	}
	for i := range b {
		damaged := bytes.Clone(b)
		damaged[i] ^= 1
		if _, ok := intact(damaged, recordVersion); ok {
			t.Errorf("byte %d is wrong, and it is read", i)
		}
		if _, ok := intact(b[:i], recordVersion); ok {
			t.Errorf("it ends at byte %d, and is read", i)
		}
	}
}

// The daemon makes a record for each call begun and each call ended, and keeps several per
// volume: what few volumes have is behind pointers.
func TestRecordsAreSmall(t *testing.T) {
	if got := unsafe.Sizeof(state.Volume{}); got > 224 {
		t.Errorf("a record has %d bytes beside what it points to", got)
	}
}

func TestEveryRecordThatIsReadHasASpec(t *testing.T) {
	for _, record := range []string{`{"id":"v"}`, `{"id":"v","spec":null}`} {
		if v, err := DecodeRecord([]byte(record)); err != nil || v.Spec == nil {
			t.Errorf("%s: %+v, %v", record, v, err)
		}
	}
}
