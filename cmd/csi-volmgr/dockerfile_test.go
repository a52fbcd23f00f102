package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// instructions returns the instructions of a Dockerfile, without comments and with broken
// lines joined.
func instructions(t *testing.T, path string) (all [][2]string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(strings.ReplaceAll(string(b), "\\\n", " ")) {
		if word, rest, ok := strings.Cut(strings.TrimSpace(line), " "); ok && !strings.HasPrefix(word, "#") {
			all = append(all, [2]string{word, strings.TrimSpace(rest)})
		}
	}
	return all
}

// The Dockerfile needs images of a registry, so no test builds it. This test checks what it
// says of this tree: the Go version of go.mod, the package, the flags of make build, the
// path of the program, and that the image runs it.
func TestDockerfileIsOfThisTree(t *testing.T) {
	file := func(path string) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join("../..", path))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	all := instructions(t, "../../deploy/Dockerfile")
	rest := func(word string) (found []string) {
		for _, i := range all {
			if i[0] == word {
				found = append(found, i[1])
			}
		}
		return found
	}
	goes := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(file("go.mod"))
	if from := rest("FROM"); len(from) != 2 || len(goes) != 2 || !strings.HasPrefix(from[0], "golang:"+goes[1]+".") || !strings.HasSuffix(from[0], " AS build") {
		t.Errorf("FROM %q, and go.mod has Go %q", from, goes)
	}
	run := rest("RUN")
	build := regexp.MustCompile(`^CGO_ENABLED=0 go build (.*) -o (/\S+) (\./\S+)$`).FindStringSubmatch(run[0])
	if build == nil {
		t.Fatalf("RUN %s is no build", run[0])
	}
	made := regexp.MustCompile(`CGO_ENABLED=0 \$\(GO\) build (.*) -o \S+ (\./\S+)`).FindStringSubmatch(file("Makefile"))
	flags := strings.NewReplacer(`"`, "'", "$VERSION", "$(VERSION)").Replace(build[1])
	if made == nil || flags != made[1] || build[3] != made[2] {
		t.Errorf("it builds with %q, and make build with %q", build[1:], made)
	}
	copies := rest("COPY")
	if len(copies) != 2 || copies[0] != ". ." || copies[1] != "--from=build "+build[2]+" /usr/local/bin/csi-volmgr" {
		t.Errorf("COPY %q, and the program is at %s", copies, build[2])
	}
	var entry []string
	if err := json.Unmarshal([]byte(rest("ENTRYPOINT")[0]), &entry); err != nil || !slices.Equal(entry, []string{"csi-volmgr"}) {
		t.Errorf("ENTRYPOINT %q: %v", entry, err)
	}
	for _, cmd := range rest("CMD") {
		var words []string
		if err := json.Unmarshal([]byte(cmd), &words); err != nil || checkCommand(words) != "" {
			t.Errorf("CMD %s: %v %s", cmd, err, checkCommand(words))
		}
	}
}

// Every command that deploy runs in a cluster or under systemd is a verb with flags that exist.
func TestCommandsOfDeployAreOfThisProgram(t *testing.T) {
	units, err := filepath.Glob("../../deploy/systemd/*.service")
	if err != nil || len(units) == 0 {
		t.Fatalf("%q %v", units, err)
	}
	exec := regexp.MustCompile(`(?m)^Exec\w+=[-+!@:]*/usr/bin/csi-volmgr (.*)$`)
	for _, path := range units {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range exec.FindAllStringSubmatch(string(b), -1) {
			if problem := checkCommand(strings.Fields(m[1])); problem != "" {
				t.Errorf("%s: %s: %s", path, m[1], problem)
			}
		}
	}
	b, err := os.ReadFile("../../deploy/kustomize/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	args := regexp.MustCompile(`(?m)^ +args:\n((?: +- \S+\n)+)`).FindSubmatch(b)
	if args == nil {
		t.Fatal("the DaemonSet has no args")
	}
	words := strings.Fields(strings.ReplaceAll(string(args[1]), "- ", " "))
	if problem := checkCommand(words); problem != "" || words[0] != "run" {
		t.Errorf("the DaemonSet runs %q: %s", words, problem)
	}
}
