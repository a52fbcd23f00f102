package main

import (
	"slices"
	"strings"
	"testing"
)

// A field that is done changes the result that csi-volmgr resolves from the objects, without a
// problem, or causes a problem that names it. A refused field causes an error that names the
// object, the field, what was found, and what is wanted.
func TestDecisionsAreTrue(t *testing.T) {
	type start struct {
		kind, name string
		base       base
	}
	starts := map[start]string{}
	for _, d := range decisions(t) {
		if d.by == "" || d.by == byTest {
			continue
		}
		from := start{d.kind, d.name, d.base}
		before, ok := starts[from]
		if !ok {
			var problems []string
			if before, problems = look(t, d, d.path, ""); len(problems) > 0 {
				t.Fatalf("fields.txt:%d: %s: before the change: %q", d.line, d.path, problems)
			}
			starts[from] = before
		}
		for _, path := range everywhere(d.path) {
			after, problems := look(t, d, path, d.value)
			said := strings.Join(problems, "; ")
			switch {
			case d.decision == refused:
				wantRefusal(t, d, said)
			case d.by == byProblem:
				if !names(said, path) && !strings.Contains(said, d.value) {
					t.Errorf("fields.txt:%d: %s: %s: the problems %q do not name the field", d.line, path, d.value, problems)
				}
			case len(problems) > 0:
				t.Errorf("fields.txt:%d: %s: %s is a problem: %q", d.line, path, d.value, problems)
			case before == after:
				t.Errorf("fields.txt:%d: %s: %s changes nothing of what is resolved", d.line, path, d.value)
			}
		}
	}
}

// names reports whether the words name the field, or a field that contains it.
func names(said, path string) bool {
	parts := strings.Split(strings.ReplaceAll(path, "[]", ""), ".")
	return slices.ContainsFunc(parts[1:], func(part string) bool { return strings.Contains(said, part) })
}

// everywhere lists the paths that a path stands for: a container's path stands for each
// sort of container.
func everywhere(path string) []string {
	rest, ok := strings.CutPrefix(path, "spec.containers[]")
	if !ok {
		return []string{path}
	}
	var all []string
	for _, list := range containers {
		all = append(all, "spec."+list+"[]"+rest)
	}
	return all
}

// look returns what csi-volmgr resolves from the objects with the base of a decision, and
// with its value if there is one.
func look(t *testing.T, d decision, path, value string) (text string, problems []string) {
	t.Helper()
	docs := read(t)
	object := docs.object(d.kind, d.name)
	set := func(path, value string) {
		if err := put(object, path, value); err != nil {
			t.Fatalf("fields.txt:%d: %v", d.line, err)
		}
	}
	if d.base.path != "" {
		set(d.base.path, d.base.value)
		only(object, d.base.path)
	}
	if value != "" {
		set(path, value)
		if d.decision == refused && d.kind != "PersistentVolumeClaim" {
			only(object, path)
		}
	}
	w, err := docs.decode()
	if err != nil {
		return "", []string{err.Error()}
	}
	return w.seen()
}

// wantRefusal checks that the words are those of resolve.Fault, or of an unknown kind.
func wantRefusal(t *testing.T, d decision, said string) {
	t.Helper()
	last := d.path[strings.LastIndex(d.path, ".")+1:]
	object := map[string]string{"Pod": "pod default/web", "PersistentVolume": "volume pv-1", "PersistentVolumeClaim": "claim default/new"}[d.kind]
	at := "spec." + last
	if strings.HasPrefix(d.path, "spec.volumes[]") {
		at = "spec.volumes[0]"
	}
	right := strings.Contains(said, "want ") || strings.Contains(said, "use ") || strings.Contains(said, "clone into")
	if !strings.Contains(said, object) || !strings.Contains(said, at) || !strings.Contains(said, last) || !right {
		t.Errorf("fields.txt:%d: %s is refused by %q; want words for %s, %s, %s and what would be right", d.line, d.path, said, object, at, last)
	}
}
