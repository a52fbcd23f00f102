package controller

import (
	"bytes"
	"testing"
	"testing/synctest"
)

// A volume has one mark as long as it exists, over restarts and while no source lists its claim. Its snapshots have
// it, too. The next volume of the claim has another one, whatever its handle is.
func TestEachVolumeHasItsMark(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(testClaim("a", mib))
		mark := h.bound(testKey("a")).Mark
		if mark == "" {
			t.Error("a new volume has no mark")
		}
		h.snap(testSnapshot("s", h.bound(testKey("a")).Handle))
		h.c.RemoveClaim(testKey("a"))
		h.end()
		h.live()
		h.up()
		h.set(testClaim("a", mib))
		if got := h.bound(testKey("a")).Mark; got != mark {
			t.Errorf("after a restart: %q, want %q", got, mark)
		}
		h.snap(testSnapshot("s2", h.bound(testKey("a")).Handle))
		for _, name := range []string{"s", "s2"} {
			if got := h.snapshot(name); got.Mark != mark || !got.Ready {
				t.Errorf("snapshot %s: mark %q, want %q", name, got.Mark, mark)
			}
		}
		h.c.RemoveClaim(testKey("a"))
		if err := h.c.Delete(t.Context(), testKey("a"), false); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		h.set(testClaim("a", mib))
		if got := h.bound(testKey("a")).Mark; got == mark || got == "" {
			t.Errorf("the next volume has the mark %q", got)
		}
		h.snap(testSnapshot("s3", h.bound(testKey("a")).Handle))
		if got := h.snapshot("s3").Mark; got != h.bound(testKey("a")).Mark || h.snapshot("s").Mark != mark {
			t.Errorf("its snapshot has the mark %q, an earlier one %q", got, h.snapshot("s").Mark)
		}
	})
}

// A volume of an earlier version has no mark, and gets none: its snapshots, earlier and later, are of one volume.
func TestAVolumeOfAnEarlierVersionHasNoMark(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(testClaim("a", mib))
		h.snap(testSnapshot("s", h.bound(testKey("a")).Handle))
		mark := h.bound(testKey("a")).Mark
		h.end()
		for _, records := range []map[string][]byte{h.disk.values, h.disk.cuts} {
			for key, value := range records {
				records[key] = bytes.ReplaceAll(value, []byte(`"mark":"`+mark+`"`), []byte(`"other":1`))
			}
		}
		h.live()
		h.up()
		claim := testClaim("a", 2*mib) // its record is written again
		h.set(claim)
		h.snap(testSnapshot("s2", h.bound(testKey("a")).Handle))
		if got := []string{h.bound(testKey("a")).Mark, h.snapshot("s").Mark, h.snapshot("s2").Mark}; got[0]+got[1]+got[2] != "" {
			t.Errorf("marks %q", got)
		}
	})
}
