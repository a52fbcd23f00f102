package arch

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// block is a fenced block of a document.
type block struct {
	line int
	// kind is the first word after the fence, rest the text after it.
	kind, rest string
	body       []string
}

var (
	fence    = regexp.MustCompile("^ *```(.*)$")
	indented = regexp.MustCompile(`^ {4,}[^ \-*]`)
	runBy    = regexp.MustCompile(`^elsewhere (\S+): \S.*$`)
	byNobody = regexp.MustCompile(`^nowhere: \S.*$`)
)

// commands are the words that begin a command in a document. Only blocks of kind sh
// may have one.
var commands = []string{"sudo", "csi-volmgr", "bin/csi-volmgr", "make", "go", "systemctl", "kubectl", "apt", "podman", "curl", "hack/", ".ci/run"}

// blocks splits a document; loose has the numbers of the lines of code without a fence.
func blocks(text string) (fenced []block, loose []int) {
	var in *block
	blank := true
	for i, line := range strings.Split(text, "\n") {
		m := fence.FindStringSubmatch(line)
		switch {
		case m != nil && in == nil:
			kind, rest, _ := strings.Cut(m[1], " ")
			in = &block{line: i + 1, kind: kind, rest: rest}
		case m != nil:
			fenced = append(fenced, *in)
			in = nil
		case in != nil:
			in.body = append(in.body, strings.TrimSpace(line))
		case blank && indented.MatchString(line):
			loose = append(loose, i+1)
		}
		blank = strings.TrimSpace(line) == ""
	}
	return fenced, loose
}

// blockProblems lists the commands of a document that nothing runs. Each command must be
// in a block that `make docs-test` runs (```sh, in README.md, HACKING.md and docs/), or
// in one that says which file runs it and why docs-test cannot
// (```sh elsewhere FILE: why), or in one that says why nothing can run it
// (```sh nowhere: why). Go code must be in the file that its fence names
// (```go FILE), line by line. read returns a file of the tree.
func blockProblems(name, text string, read func(string) (string, error)) (problems []string) {
	fenced, loose := blocks(text)
	for _, line := range loose {
		problems = append(problems, fmt.Sprintf("%s:%d: code without a fence, so nothing says who runs it", name, line))
	}
	for _, b := range fenced {
		at := fmt.Sprintf("%s:%d", name, b.line)
		switch {
		case b.kind == "go":
			problems = append(problems, b.copied(at, read)...)
		case b.kind == "sh" && (b.rest == "" || b.rest == "background"):
			if name != "README.md" && name != "HACKING.md" && !strings.HasPrefix(name, "docs/") {
				problems = append(problems, at+": `make docs-test` runs no commands of this file: say ```sh elsewhere FILE: why")
			}
		case b.kind == "sh" && byNobody.MatchString(b.rest):
		case b.kind == "sh":
			problems = append(problems, b.elsewhere(at, read)...)
		case b.kind == "":
			problems = append(problems, at+": a fence without a kind: sh for commands, text for what is none")
		case name != "docs/reference/cli.md":
			problems = append(problems, b.plain(at)...)
		}
	}
	return problems
}

// copied checks that the file that the fence names has the Go code, in this order.
func (b block) copied(at string, read func(string) (string, error)) []string {
	source, err := read(b.rest)
	if err != nil {
		return []string{fmt.Sprintf("%s: Go code is that of a file, ```go FILE: %v", at, err)}
	}
	for _, line := range b.body {
		if line == "" {
			continue
		}
		i := strings.Index(source, line+"\n")
		if i < 0 {
			return []string{fmt.Sprintf("%s: %s has not, or not there: %s", at, b.rest, line)}
		}
		source = source[i+len(line):]
	}
	return nil
}

// plain checks that a block that nothing runs has no command.
func (b block) plain(at string) (problems []string) {
	for _, line := range b.body {
		if slices.ContainsFunc(commands, func(c string) bool {
			return line == c || strings.HasPrefix(line, c+" ") || c == "hack/" && strings.HasPrefix(line, c)
		}) {
			problems = append(problems, fmt.Sprintf("%s: a command in a block of kind %s, which nobody runs: %s", at, b.kind, line))
		}
	}
	return problems
}

// elsewhere checks that the file which a block names has each of its commands.
func (b block) elsewhere(at string, read func(string) (string, error)) (problems []string) {
	m := runBy.FindStringSubmatch(b.rest)
	if m == nil {
		return []string{at + ": say who runs it and why not `make docs-test`: ```sh elsewhere FILE: why"}
	}
	text, err := read(m[1])
	if err != nil {
		return []string{fmt.Sprintf("%s: who runs it: %v", at, err)}
	}
	words := " " + strings.Join(notWord.Split(strings.ReplaceAll(text, "$(GO)", "go"), -1), " ") + " "
	for _, c := range commandsOf(b.body) {
		asTarget, isMake := strings.CutPrefix(c, "make ")
		if strings.Contains(words, " "+c+" ") || isMake && strings.Contains(text, "\n"+asTarget+":") {
			continue
		}
		problems = append(problems, fmt.Sprintf("%s: %s does not run: %s", at, m[1], c))
	}
	return problems
}

// notWord matches the separators between the words of commands in any file.
var notWord = regexp.MustCompile(`[^A-Za-z0-9_./-]+`)

// commandsOf returns the commands of a block, each as the program and, if it is not a
// flag, the next word: a verb, a target, or a file.
func commandsOf(body []string) (found []string) {
	for _, line := range strings.Split(strings.ReplaceAll(strings.Join(body, "\n"), "\\\n", " "), "\n") {
		line, _, _ = strings.Cut(line, " #")
		for part := range strings.SplitSeq(line, "&&") {
			words := strings.Fields(part)
			if len(words) > 0 && words[0] == "sudo" {
				words = words[1:]
			}
			if len(words) > 1 && !strings.HasPrefix(words[1], "-") {
				found = append(found, words[0]+" "+words[1])
			} else if len(words) > 0 {
				found = append(found, words[0])
			}
		}
	}
	return found
}
