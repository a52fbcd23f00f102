package arch

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	required  = regexp.MustCompile(`(?m)^(?:require )?\s*([a-z0-9][^\s()]*) (v[0-9][^\s]*)`)
	modVer    = regexp.MustCompile(`^v(\d+)\.(\d+)\.(\d+)(.*)$`)
	elsewhere = regexp.MustCompile(`(?m)^(?:replace )?\s*(\S+) => (\.\.?\S*)`)
)

// moduleProblems lists the requirements of this tree's modules, by the directories of their
// go.mod, that are older than those of a module of the tree that they depend on: `go build`
// refuses such a module until `go mod tidy`. It compares
// texts, since building some modules takes half an hour.
func moduleProblems(mods map[string]string) (problems []string) {
	for _, dir := range slices.Sorted(maps.Keys(mods)) {
		mine := requirements(mods[dir])
		for _, r := range elsewhere.FindAllStringSubmatch(mods[dir], -1) {
			if _, asked := mine[r[1]]; !asked {
				continue // go build does not check the requirements of a module's own modules
			}
			other := path.Join(dir, r[2])
			theirs := requirements(mods[other])
			for _, module := range slices.Sorted(maps.Keys(theirs)) {
				if have, asked := mine[module]; asked && older(have, theirs[module]) {
					problems = append(problems, fmt.Sprintf("%s/go.mod: asks for %s %s, and %s for %s: run go mod tidy there",
						dir, module, have, path.Join(other, "go.mod"), theirs[module]))
				}
			}
		}
	}
	return problems
}

// requirements returns the versions that a go.mod requires, by module.
func requirements(text string) map[string]string {
	out := map[string]string{}
	for _, m := range required.FindAllStringSubmatch(text, -1) {
		out[m[1]] = m[2]
	}
	return out
}

// older compares versions: numbers first, then their suffixes; a release is newer than its
// prereleases.
func older(a, b string) bool {
	va, vb := modVer.FindStringSubmatch(a), modVer.FindStringSubmatch(b)
	if va == nil || vb == nil {
		return a != b
	}
	for i := 1; i <= 3; i++ {
		na, _ := strconv.Atoi(va[i])
		nb, _ := strconv.Atoi(vb[i])
		if c := cmp.Compare(na, nb); c != 0 {
			return c < 0
		}
	}
	return pre(va[4]) < pre(vb[4])
}

// pre returns the suffix of a version in a form that sorts: a release ("" or
// "+incompatible") comes after its prereleases.
func pre(s string) string {
	if strings.HasPrefix(s, "-") {
		return s
	}
	return "~"
}
