package server

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/google/go-cmp/cmp"
)

var updateAnswers = flag.Bool("update-answers", false, "write testdata/answers.txt anew")

// filler fills each value from the path of its field, so that a field in the answer under another's name shows, and a
// new field changes no other value. A bool has two values: it is bit number bit of its path's checksum.
type filler struct {
	t   *testing.T
	bit int
}

const boolBits = 10

func (f filler) fill(v reflect.Value, path string) {
	sum := crc32.ChecksumIEEE([]byte(path))
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), path)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(now.Add(time.Duration(sum%1e6) * time.Second)))
			return
		}
		for i := range v.NumField() {
			if field := v.Field(i); field.CanSet() {
				f.fill(field, path+"."+v.Type().Field(i).Name)
			}
		}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes([]byte(`{"a":"b"}`))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		f.fill(v.Index(0), path)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(key, path+".key")
		f.fill(value, path)
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString(path)
	case reflect.Bool:
		v.SetBool(sum>>f.bit&1 == 1)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(sum % 1e6))
	case reflect.Uint8: // a phase or a verb
		v.SetUint(uint64(1 + sum%3))
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(sum % 1e6))
	default:
		f.t.Fatalf("no value for a %v", v.Type())
	}
}

func distinct[T any](t *testing.T, bit int) T {
	t.Helper()
	var v T
	filler{t, bit}.fill(reflect.ValueOf(&v).Elem(), "")
	return v
}

// keptCalls returns the same calls to every request.
type keptCalls []manager.EndedCall

func (k keptCalls) Calls(...state.VolumeID) []manager.EndedCall { return k }
func (k keptCalls) AllCalls() []manager.EndedCall               { return k }
func (keptCalls) CallsNamed(string) []state.VolumeID            { return nil }
func (keptCalls) CallsOfPod(string) []state.VolumeID            { return nil }

// bare returns facts in which every field is empty.
func bare() Facts {
	return Facts{
		Pods:    []manager.PodStatus{{}, {Volumes: []manager.PodVolumeStatus{{}}}},
		Volumes: []manager.VolumeStatus{{Volume: state.Volume{Spec: &state.Spec{}}}, {Volume: state.Volume{Spec: &state.Spec{}, Mounts: map[state.PodUID]state.Mount{"u": {}}}, Unmount: &plan.UnmountProgress{}, SELinux: &manager.SELinuxStatus{}}},
		Drivers: []manager.DriverStatus{{}},
		Claims:  []ClaimStatus{{}},
		Now:     now,
	}
}

// answersOf returns the answers of a server that shows f, each below its request.
func answersOf(t *testing.T, f Facts, calls keptCalls, requests ...string) []byte {
	t.Helper()
	b := newBackend(f)
	cfg := config(t, b)
	cfg.Trace, cfg.Stats, cfg.Operator, cfg.Drainer = calls, operator{t}, operator{t}, operator{t}
	_, stop := start(t, cfg)
	var out bytes.Buffer
	for _, r := range requests {
		method, path, _ := strings.Cut(r, " ")
		code, answer := unixGet(t, cfg.Socket, method, path, nil)
		fmt.Fprintf(&out, "# %s: %d\n%s\n", r, code, strings.TrimSuffix(answer, "\n"))
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	return out.Bytes()
}

// The API's answers are a promise: the name, order and format of every field. An answer has a field of a record or of
// a manager's status only if it names that field.
func TestAnswersAreByteForByte(t *testing.T) {
	lists := []string{"GET /v1/pods", "GET /v1/volumes", "GET /v1/drivers", "GET /v1/claims", "GET /v1/trace"}
	var got []byte
	for bit := range boolBits {
		f := distinct[Facts](t, bit)
		f.Pods[0].Pod.Namespace, f.Pods[0].Pod.Name = "default", "web"
		f.Pods[0].Volumes[0].Mounted, f.Pods[0].Volumes[0].ID = true, f.Volumes[0].Volume.ID
		requests := lists
		if bit == 0 {
			requests = append(lists[:len(lists):len(lists)], "GET /v1/pods/default/web", "GET /v1/pods/default/web/mounts", "GET /v1/mounts",
				"GET /v1/pods/default/web/wait?for=mounted&timeout=0s", "GET /v1/volumes/"+string(f.Volumes[0].Volume.ID), "GET /v1/persistentvolumes",
				"GET /v1/sockets", "POST /v1/recovery/accept?reason=x")
		}
		got = append(got, answersOf(t, f, distinct[keptCalls](t, bit), requests...)...)
	}
	got = append(got, answersOf(t, bare(), keptCalls{{}}, lists...)...)
	got = append(got, answersOf(t, Facts{Now: now}, nil, lists...)...)
	const file = "testdata/answers.txt"
	if *updateAnswers {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("(-want +got):\n%s", cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")))
	}
}

// recordsIn lists the structs of the journal, the plan and the manager in t: the API would promise their fields.
func recordsIn(t reflect.Type, seen map[reflect.Type]bool) (found []string) {
	if seen[t] {
		return nil
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return recordsIn(t.Elem(), seen)
	case reflect.Map:
		return append(recordsIn(t.Key(), seen), recordsIn(t.Elem(), seen)...)
	case reflect.Struct:
		if pkg := t.PkgPath(); strings.HasSuffix(pkg, "/pkg/state") || strings.Contains(pkg+"/", "/pkg/manager/") {
			return []string{t.String()}
		}
		for f := range t.Fields() {
			if f.IsExported() {
				found = append(found, recordsIn(f.Type, seen)...)
			}
		}
	}
	return found
}

// The API's answers consist of types of this package (docs/adr/0028).
func TestNoAnswerHoldsARecord(t *testing.T) {
	seen := map[reflect.Type]bool{}
	for _, p := range paths() {
		for _, answer := range []any{p.answer, p.event, p.body} {
			if answer == nil {
				continue
			}
			if found := recordsIn(reflect.TypeOf(answer), seen); len(found) > 0 {
				t.Errorf("%s: %s: answer with a type of this package, and name its fields in convert.go", p.pattern, strings.Join(found, ", "))
			}
		}
	}
	type planted struct{ Items []map[string]*state.Volume }
	type held struct{ Held plan.Held }
	for _, of := range []reflect.Type{reflect.TypeFor[planted](), reflect.TypeFor[held](), reflect.TypeFor[manager.PodStatus]()} {
		if len(recordsIn(of, map[reflect.Type]bool{})) == 0 {
			t.Errorf("%v: no record is found in it", of)
		}
	}
}
