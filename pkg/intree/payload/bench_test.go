package payload_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/payload"
)

// BenchmarkWrite is an update of two files, one of five hundred, and a look at
// what is right already.
func BenchmarkWrite(b *testing.B) {
	for _, files := range []int{2, 500} {
		for _, changes := range []bool{true, false} {
			b.Run(fmt.Sprintf("files=%d/changes=%v", files, changes), func(b *testing.B) {
				v, set := newVolume(b), payload.Files{}
				for i := range files {
					set[fmt.Sprintf("file-%d", i)] = text(strings.Repeat("x", 100))
				}
				if _, err := v.write(b.Context(), set, nil); err != nil {
					b.Fatal(err)
				}
				for n := 0; b.Loop(); n++ {
					if changes {
						set["file-0"] = text(fmt.Sprint(n))
					}
					if changed, err := v.write(b.Context(), set, nil); err != nil || changed != changes {
						b.Fatalf("changed %v, %v", changed, err)
					}
				}
			})
		}
	}
}
