package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the tree.
const root = "../.."

func decisions(t *testing.T) []decision {
	t.Helper()
	all, err := parse(table)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Every field has one decision, and every decision has a field.
func TestEveryFieldHasADecision(t *testing.T) {
	all := decisions(t)
	for _, p := range problems(all, fields()) {
		t.Error(p)
	}
	if n := len(fields()); n < 400 {
		t.Errorf("%d fields: the types have more", n)
	}
}

// problems lists fields without a decision, and decisions without a field of their own.
func problems(all []decision, of []field) (found []string) {
	used, seen := map[string]bool{}, map[string]bool{}
	for _, f := range of {
		if d, ok := decide(all, f); ok {
			used[d.key()] = true
		} else {
			found = append(found, f.key()+": no decision in fields.txt: done, refused or none?")
		}
	}
	for _, d := range all {
		if !used[d.key()] {
			found = append(found, d.key()+": a decision in fields.txt for a field that there is not")
		}
		if seen[d.key()] {
			found = append(found, d.key()+": a second decision in fields.txt")
		}
		seen[d.key()] = true
	}
	return found
}

func TestFieldsWithoutADecisionAreFound(t *testing.T) {
	of := []field{{"Pod", "spec.a"}, {"Pod", "spec.b.c"}, {"Pod", "spec.b.d"}, {"Pod", "spec.bb"}, {"Pod", "spec.l[].m"}}
	for text, want := range map[string][]string{
		".a | none | w\n.b | none | w\n.bb | none | w\n.l | none | w":                                   nil,
		".a | none | w\n.b | none | w\n.b.c | none | w\n.bb | none | w\n.l[].m | none | w":              nil,
		".a | none | w\n.b | none | w\n.l | none | w":                                                   {"Pod spec.bb: no decision"},
		".a | none | w\n.b | done | set 1\n.bb | none | w\n.l | none | w":                               {"Pod spec.b.c: no decision", "Pod spec.b.d: no decision", "Pod spec.b: a decision in fields.txt for"},
		".a | none | w\n.b | none | w\n.bb | none | w\n.l | none | w\n.z | none | w":                    {"Pod spec.z: a decision in fields.txt for"},
		".a | none | w\n.a | none | w\n.b | none | w\n.bb | none | w\n.l[].m | none | w":                {"Pod spec.a: a second decision"},
		".a | none | w\n.b | none | w\n.b.c | none | w\n.b.d | none | w\n.bb | none | w\n.l | none | w": {"Pod spec.b: a decision in fields.txt for"},
	} {
		all, err := parse("== Pod spec\n" + text)
		if err != nil {
			t.Fatal(err)
		}
		got := problems(all, of)
		if len(got) != len(want) || slices.ContainsFunc(want, func(w string) bool {
			return !slices.ContainsFunc(got, func(g string) bool { return strings.HasPrefix(g, w) })
		}) {
			t.Errorf("%s\ngot %q, want %q", text, got, want)
		}
	}
	for _, bad := range []string{
		".a | none | ", ".a | perhaps | set 1", ".a | done | set ", ".a | done | by hand", ".a | done | test pkg/x", ".a | refused | set 1", ".a | none | w | more",
	} {
		if _, err := parse("== Pod spec\n" + bad); err == nil || !strings.Contains(err.Error(), "fields.txt:2: ") {
			t.Errorf("%s: got %v", bad, err)
		}
	}
}

func TestThePageIsOfTheTable(t *testing.T) {
	have, err := os.ReadFile(filepath.Join(root, document))
	if err != nil || string(have) != page(decisions(t)) {
		t.Errorf("%s is not what hack/fields/fields.txt says (%v): make fields-docs", document, err)
	}
}

// Every cited test exists.
func TestTestsThatAreCitedExist(t *testing.T) {
	for _, d := range decisions(t) {
		if d.by != byTest {
			continue
		}
		files, err := filepath.Glob(filepath.Join(root, d.pkg, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		is := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(d.test) + `\(t `)
		if !slices.ContainsFunc(files, func(file string) bool {
			b, err := os.ReadFile(file)
			return err == nil && is.Match(b)
		}) {
			t.Errorf("fields.txt:%d: %s: there is no test %s in %s", d.line, d.key(), d.test, d.pkg)
		}
	}
}
