package items

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A promise is a sentence of a page, or a row of a table, with the tests that hold it.
type promise struct {
	Text string
	// Tests are directories with names of tests: "internal/wire TestA TestB".
	Tests []string
	// Other is what a sentence is that no test can hold: advice, reason or link.
	Other string
}

// Each sentence begins with a key. The line of that key names its tests or one of these words.
var others = []string{
	"advice", // what the reader does
	"reason", // how the kernel, Kubernetes or another program is, or why
	"link",
}

const (
	testsOpen  = "\n<!-- tests\n"
	testsClose = "\n-->"
)

var sentenceEnd = regexp.MustCompile(`[.!?]\s+`)

// promises returns the sentences and rows of a page of Markdown. problems lists sentences without
// tests, and keys that no sentence or more than one begins with.
func promises(page string) (all []promise, problems []string) {
	for page = strings.TrimSpace(page); page != ""; {
		text, rest, named := strings.Cut(page, testsOpen)
		keys, after, closed := strings.Cut(rest, testsClose)
		blocks := strings.Split(strings.TrimSpace(text), "\n\n")
		for _, b := range blocks[:len(blocks)-1] {
			if !strings.HasPrefix(b, "#") {
				problems = append(problems, fmt.Sprintf("no tests are named after %.60q", b))
			}
		}
		if !named || !closed {
			return all, append(problems, fmt.Sprintf("no tests are named after %.60q", blocks[len(blocks)-1]))
		}
		found, bad := paired(sentences(blocks[len(blocks)-1]), strings.Split(keys, "\n"))
		all, problems = append(all, found...), append(problems, bad...)
		page = strings.TrimSpace(after)
	}
	return all, problems
}

// sentences splits a paragraph, or the rows of a table below its head.
func sentences(block string) (all []string) {
	if strings.HasPrefix(block, "|") {
		for _, row := range strings.Split(block, "\n")[2:] {
			all = append(all, strings.TrimSpace(strings.TrimPrefix(row, "|")))
		}
		return all
	}
	block = strings.ReplaceAll(strings.Join(strings.Fields(block), " "), "**", "")
	for {
		at := sentenceEnd.FindStringIndex(block)
		if at == nil {
			return append(all, block)
		}
		all, block = append(all, block[:at[0]+1]), block[at[1]:]
	}
}

// paired gives each sentence the line of its key.
func paired(texts, lines []string) (all []promise, problems []string) {
	used := make([]int, len(lines))
	for _, text := range texts {
		var p promise
		matches := 0
		for i, line := range lines {
			key, tests, _ := strings.Cut(line, " = ")
			if !strings.HasPrefix(text, key) {
				continue
			}
			matches++
			used[i]++
			p = promise{Text: text, Other: tests}
			if !slices.Contains(others, tests) {
				p.Other, p.Tests = "", strings.Split(tests, "; ")
			}
		}
		if matches != 1 {
			problems = append(problems, fmt.Sprintf("%d lines of tests are of the sentence %.60q, want 1", matches, text))
			continue
		}
		all = append(all, p)
	}
	for i, line := range lines {
		if used[i] != 1 {
			problems = append(problems, fmt.Sprintf("%d sentences begin as the line %.60q says, want 1", used[i], line))
		}
	}
	return all, problems
}

// testTree knows the tests of each directory below root that was asked for.
type testTree struct {
	root string
	dirs map[string]string // directory -> the source of its tests
}

// missing lists the tests of p that are not in the tree.
func (t testTree) missing(p promise) (problems []string, err error) {
	for _, room := range p.Tests {
		words := strings.Fields(room)
		if len(words) < 2 {
			problems = append(problems, fmt.Sprintf("%.60q: found %q, want a directory and its tests, or one of %s", p.Text, room,
				strings.Join(others, ", ")))
			continue
		}
		source, err := t.source(words[0])
		if err != nil {
			return nil, err
		}
		for _, name := range words[1:] {
			if !isTest(name) || !strings.Contains(source, "\nfunc "+name+"(") {
				problems = append(problems, fmt.Sprintf("%s has no test %s, which the page names of %.60q", words[0], name, p.Text))
			}
		}
	}
	return problems, nil
}

// source returns the tests of a directory.
func (t testTree) source(dir string) (string, error) {
	if all, known := t.dirs[dir]; known {
		return all, nil
	}
	files, err := filepath.Glob(filepath.Join(t.root, filepath.FromSlash(dir), "*_test.go"))
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		all.Write(text)
	}
	t.dirs[dir] = all.String()
	return t.dirs[dir], nil
}
