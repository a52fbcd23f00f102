package payload_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/payload"
)

// BenchmarkWrite measures a write to a volume of 2 and of 500 files, with one file changed
// and with none.
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

// BenchmarkFirstWrite measures the first write to a volume, and its removal.
func BenchmarkFirstWrite(b *testing.B) {
	v := newVolume(b)
	set := payload.Files{"a": text("1"), "b": text("2")}
	w := payload.Writer{Kernel: mount.New(), Now: v.now}
	for b.Loop() {
		at := filepath.Join(v.path, "volume")
		if err := os.Mkdir(at, 0o755); err != nil {
			b.Fatal(err)
		}
		dir, err := os.Open(at)
		if err != nil {
			b.Fatal(err)
		}
		if done, err := w.Write(b.Context(), dir, payload.Set{Files: set}); err != nil || !done.Changed {
			b.Fatalf("%+v, %v", done, err)
		}
		if err := errors.Join(dir.Close(), os.RemoveAll(at)); err != nil {
			b.Fatal(err)
		}
	}
}
