package unpack

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// The memory that the entries of a layer take does not grow with their names.
//
// Attacks: C48.
func TestAttackLongNamesAreNotKept(t *testing.T) {
	tree := &Tree{made: map[mark]bool{}}
	above := strings.Repeat(strings.Repeat("d", 250)+"/", 15)
	used := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := used()
	for i := range 10_000 {
		if err := tree.note(fmt.Sprintf("%s%d", above, i)); err != nil {
			t.Fatal(err)
		}
	}
	if took := int64(used() - before); took > 4<<20 {
		t.Errorf("10000 names of 4 kB left %d bytes in memory", took)
	}
	if len(tree.made) != 10_015 || !tree.made[markOf(above+"7")] {
		t.Errorf("%d paths are known", len(tree.made))
	}
}
