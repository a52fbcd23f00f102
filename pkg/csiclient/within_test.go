package csiclient

import (
	"fmt"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// requestsWithin returns the requests whose fields within knows.
func requestsWithin() []proto.Message {
	return []proto.Message{&csi.NodeStageVolumeRequest{}, &csi.NodePublishVolumeRequest{}, &csi.NodeUnpublishVolumeRequest{}, &csi.NodeUnstageVolumeRequest{}}
}

// fill sets every text field of m to text(path of the field). Of a oneof, the last
// member stays.
func fill(m protoreflect.Message, path string, text func(path string) string) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		at := path + "." + string(f.Name())
		switch {
		case f.IsMap() && f.MapValue().Kind() == protoreflect.StringKind:
			m.Mutable(f).Map().Set(protoreflect.ValueOfString("k").MapKey(), protoreflect.ValueOfString(text(at)))
		case f.IsList() && f.Kind() == protoreflect.StringKind:
			m.Mutable(f).List().Append(protoreflect.ValueOfString(text(at)))
		case f.Message() != nil && !f.IsMap() && !f.IsList():
			fill(m.Mutable(f).Message(), at, text)
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString(text(at)))
		}
	}
}

// within accepts exactly what the walk by reflection accepts, whatever the size of any
// field. A field that a later CSI adds fails the test until within knows it.
func TestWithinKnowsEveryField(t *testing.T) {
	contents := map[string]string{"invalid": "\xff"}
	for _, size := range []int{1, maxString, maxString + 1, maxNodeID, maxMap - 1, maxMap, maxFlags, maxFlags + 1, maxGiven - 1, maxGiven} {
		contents[fmt.Sprint(size, " bytes")] = strings.Repeat("x", size)
	}
	for _, empty := range requestsWithin() {
		var paths []string
		good := proto.Clone(empty)
		fill(good.ProtoReflect(), "", func(path string) string { paths = append(paths, path); return "x" })
		if !within(good) || !within(empty) {
			t.Errorf("%T: within does not let pass what has a letter in each field, or nothing", empty)
		}
		refused := 0
		for _, path := range paths {
			for name, content := range contents {
				m := proto.Clone(empty)
				fill(m.ProtoReflect(), "", func(at string) string {
					if at == path {
						return content
					}
					return "x"
				})
				err := checkMessage(m.ProtoReflect())
				if within(m) != (err == nil) {
					t.Errorf("%T: %s with %s: within says %v, the limits %v", m, path, name, within(m), err)
				}
				if err != nil {
					refused++
				}
			}
		}
		if refused < len(paths) {
			t.Errorf("%T: %d of %d fields were refused", empty, refused, len(paths))
		}
	}
}

// The limit of a map excludes tokens, though within counts them.
func TestWithinLeavesTokensToTheWalk(t *testing.T) {
	m := &csi.NodePublishVolumeRequest{VolumeContext: map[string]string{tokensKey: strings.Repeat("x", maxGiven)}}
	if err := checkLimits(m); within(m) || err != nil {
		t.Errorf("within says %v, checkLimits %v", within(m), err)
	}
}

func BenchmarkCheckLimits(b *testing.B) {
	m := &csi.NodePublishVolumeRequest{}
	fill(m.ProtoReflect(), "", func(path string) string { return path })
	for name, check := range map[string]func() bool{
		"typed":     func() bool { return checkLimits(m) == nil },
		"reflected": func() bool { return checkMessage(m.ProtoReflect()) == nil },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !check() {
					b.Fatal("refused")
				}
			}
		})
	}
}
