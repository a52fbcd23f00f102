package crash

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sometimes is the reason in the list for places that a life may or may not reach,
// depending on the order of events.
const sometimes = "# as it happens"

// TestEveryPlaceIsReachedOrListed checks that a place is either reached by a life or in the
// list of unreached places, and not both.
func TestEveryPlaceIsReachedOrListed(t *testing.T) {
	if *only != "" {
		return // with -place, the test knows one place only
	}
	reached := map[string]bool{}
	for _, l := range []*life{kinds, driver, handed, cluster, named, parked} {
		for _, places := range l.discover(t) {
			for _, place := range places {
				reached[place] = true
			}
		}
	}
	if t.Failed() {
		return
	}
	listed, either := unreached(t)
	counts := map[string][2]int{}
	for _, place := range all {
		room, _ := filepath.Split(strings.Fields(place)[0])
		n := counts[room]
		n[0]++
		if reached[place] {
			n[1]++
		}
		counts[room] = n
		switch {
		case either[place]:
		case reached[place] && listed[place]:
			t.Errorf("%s: a life comes to it; take it from the list", place)
		case !reached[place] && !listed[place]:
			t.Errorf("%s: no life comes to it; have one do so, or list it with the reason", place)
		}
		delete(listed, place)
		delete(either, place)
	}
	for _, place := range slices.Sorted(maps.Keys(listed)) {
		t.Errorf("%s: listed, and not in the source", place)
	}
	for _, place := range slices.Sorted(maps.Keys(either)) {
		t.Errorf("%s: listed, and not in the source", place)
	}
	for _, room := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%-21s %3d places, %3d reached", room, counts[room][0], counts[room][1])
	}
	t.Logf("failpoints hit: %d of the %d in the source", len(reached), len(all))
}

// unreached reads the list. A line with # is a reason, and the lines below it are its
// places. A line without "before" or "after" stands for both.
func unreached(t *testing.T) (listed, either map[string]bool) {
	b, err := os.ReadFile("testdata/unreached.txt")
	if err != nil {
		t.Fatal(err)
	}
	listed, either = map[string]bool{}, map[string]bool{}
	known := map[string]bool{}
	for _, place := range all {
		known[place] = true
	}
	into, reason := listed, ""
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
			continue
		case strings.HasPrefix(line, "# "):
			into, reason = listed, line
			if strings.HasPrefix(line, sometimes) {
				into = either
			}
			continue
		case reason == "":
			t.Fatalf("%s: no reason is above it", line)
		}
		for _, place := range sides(line, known) {
			if listed[place] || either[place] {
				t.Errorf("%s: listed twice", place)
			}
			into[place] = true
		}
	}
	return listed, either
}

// sides returns the places that a line stands for.
func sides(line string, known map[string]bool) (places []string) {
	if strings.HasSuffix(line, " before") || strings.HasSuffix(line, " after") {
		return []string{line}
	}
	places = []string{line + " before"}
	if after := fmt.Sprint(line, " after"); known[after] {
		places = append(places, after)
	}
	return places
}
