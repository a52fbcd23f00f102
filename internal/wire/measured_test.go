package wire

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/emptydir"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/stats"
)

// TestAnEmptyDirOverItsLimitIsAbnormal: its condition says what it holds and may hold.
// Items: M05.
func TestAnEmptyDirOverItsLimitIsAbnormal(t *testing.T) {
	n, _ := start(t, dirs(t))
	apply(t, n, strings.Replace(scratchPod, "emptyDir: {}", "emptyDir: {sizeLimit: 64Ki}", 1))
	pod := uidOf(t, n, "web")
	if err := n.Manager().WaitForAttachAndMount(within(t), pod); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{0, 4 << 20} {
		path := filepath.Join(n.layout.BuiltinTarget(emptydir.Kind, pod, "scratch"), "f")
		f, err := os.Create(path)
		if err == nil {
			_, err = f.Write(make([]byte, size))
			err = errors.Join(err, f.Sync(), f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		var q stats.Question
		found := questions(n)
		for s, is := range found {
			if q = is; !s.Watched {
				t.Errorf("its limit is not watched: %+v", s)
			}
		}
		if len(found) != 1 || q.Deadline == 0 {
			t.Fatalf("%+v", found)
		}
		r, err := q.Ask(t.Context())
		if err != nil || !r.Diagnosed || r.Bytes.Total != 64<<10 || (size > 0) != (len(r.Conditions) == 1) {
			t.Fatalf("with %d bytes: %+v, %v", size, r, err)
		}
		if size > 0 && (r.Conditions[0].Reason != "OverLimit" || !strings.Contains(r.Conditions[0].Message, "its limit is 65536")) {
			t.Errorf("%+v", r.Conditions)
		}
	}
}
