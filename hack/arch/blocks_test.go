package arch

import (
	"io/fs"
	"strings"
	"testing"
)

func TestCommandsThatNobodyRunsAreSeen(t *testing.T) {
	files := map[string]string{
		"Makefile": ".PHONY: x\nsim: ## simulate\n", "a_test.go": `sh(t, "systemctl", "daemon-reload")`, "main.go": "\tx := f()\n\tg(x)\n",
	}
	read := func(name string) (string, error) {
		if text, ok := files[name]; ok {
			return text, nil
		}
		return "", fs.ErrNotExist
	}
	for _, tc := range []struct{ name, text, want string }{
		{"docs/a.md", "```sh\nanything\n```", ""},
		{"docs/a.md", "1. x\n\n   ```sh background\n   anything\n   ```", ""},
		{"deploy/a.md", "```sh\nanything\n```", "deploy/a.md:1: `make docs-test` runs no commands of this file"},
		{"docs/a.md", "x\n\n    make sim\n", "docs/a.md:3: code without a fence"},
		{"docs/a.md", "- x\n\n  more\n    - nested\n", ""},
		{"docs/a.md", "```\nx\n```", "a fence without a kind"},
		{"docs/a.md", "```text\nmake sim\n```", "a command in a block of kind text"},
		{"docs/a.md", "```text\nhack/demo.sh\n```", "a command in a block of kind text"},
		{"docs/reference/cli.md", "```text\ncsi-volmgr get\n```", ""},
		{"docs/a.md", "```sh later\nmake sim\n```", "say who runs it"},
		{"docs/a.md", "```sh elsewhere Makefile:\nmake sim\n```", "say who runs it"},
		{"docs/a.md", "```sh elsewhere gone.go: why\nmake sim\n```", "who runs it: "},
		{"docs/a.md", "```sh elsewhere Makefile: an hour\nmake sim SEEDS=1 # x\n```", ""},
		{"docs/a.md", "```sh elsewhere Makefile: an hour\nmake sin\n```", "Makefile does not run: make sin"},
		{"docs/a.md", "```sh elsewhere a_test.go: PID 1\nsudo systemctl \\\n  daemon-reload\n```", ""},
		{"docs/a.md", "```sh elsewhere a_test.go: PID 1\nsystemctl daemon-reload && systemctl stop x\n```", "a_test.go does not run: systemctl stop"},
		{"docs/a.md", "```sh nowhere: no such machine\nmake sin\n```", ""},
		{"docs/a.md", "```sh nowhere:\nmake sin\n```", "say who runs it"},
		{"docs/a.md", "```go main.go\nx := f()\n\ng(x)\n```", ""},
		{"docs/a.md", "```go main.go\ng(x)\nx := f()\n```", "main.go has not, or not there: x := f()"},
		{"docs/a.md", "```go\ng(x)\n```", "Go code is that of a file"},
	} {
		got := blockProblems(tc.name, tc.text, read)
		if tc.want == "" && len(got) > 0 || tc.want != "" && (len(got) != 1 || !strings.Contains(got[0], tc.want)) {
			t.Errorf("%s %q: got %q, want %q", tc.name, tc.text, got, tc.want)
		}
	}
}
