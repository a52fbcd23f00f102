package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/localdriver"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/spf13/cobra"
)

// Every verb says what it is for, with an example.
func TestEveryVerbHasAnExample(t *testing.T) {
	var look func(*cobra.Command)
	look = func(c *cobra.Command) {
		if c.Name() == "completion" || c.Name() == "help" {
			return
		}
		if c.HasParent() && (c.Short == "" || !strings.Contains(c.Example, "csi-volmgr ")) {
			t.Errorf("%s has no example", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			look(sub)
		}
	}
	look(new(program).root())
}

// command finds the commands in a document: the words after a name of the program, up to
// the end of a command in a shell or in a span of code.
var command = regexp.MustCompile("(?:^|[\\s`/(])csi-volmgr ((?:[^`|&;#\\n<>$]|\\\\\\n)*)")

// Every command in the documents is a verb with flags that exist.
func TestCommandsInDocumentsAreOfThisProgram(t *testing.T) {
	found := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == "adr" || strings.HasPrefix(d.Name(), ".") && path != "../..") {
			return errOrSkip(err)
		}
		if d.IsDir() || filepath.Ext(path) != ".md" || d.Name() == "CHANGELOG.md" {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range command.FindAllStringSubmatch(string(b), -1) {
			words := strings.Fields(strings.ReplaceAll(m[1], "\\\n", " "))
			if problem := checkCommand(words); problem != "" {
				t.Errorf("%s: csi-volmgr %s: %s", path, strings.Join(words, " "), problem)
			}
			found++
		}
		return nil
	})
	if err != nil || found < 50 {
		t.Errorf("%d commands were found, %v", found, err)
	}
}

func errOrSkip(err error) error {
	if err != nil {
		return err
	}
	return fs.SkipDir
}

// checkCommand returns why words are no command of the program; "" if they are one. Words
// of prose (csi-volmgr is, csi-volmgr knows) are neither verb nor flag.
func checkCommand(words []string) string {
	verb := slices.IndexFunc(words, func(w string) bool { return !strings.HasPrefix(w, "-") })
	if verb < 0 || strings.Contains(words[verb], "/") {
		return ""
	}
	cmd, rest, err := new(program).root().Find(words[verb:])
	if err != nil || !cmd.HasParent() {
		if slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, "--") }) {
			return "no such verb"
		}
		return ""
	}
	cmd.InitDefaultHelpFlag()
	var plain []string
	for _, w := range rest {
		name, _, _ := strings.Cut(strings.TrimRight(w, ").,:'\""), "=")
		switch {
		case w == "-" || w == "--" || strings.HasPrefix(w, "["):
		case strings.HasPrefix(w, "--"):
			if cmd.Flag(strings.TrimPrefix(name, "--")) == nil {
				return "no flag " + name
			}
		case strings.HasPrefix(w, "-"):
			if cmd.Flags().ShorthandLookup(w[1:2]) == nil {
				return "no flag " + w
			}
		default:
			plain = append(plain, w)
		}
	}
	if slices.Contains([]string{"retry", "forget"}, cmd.Name()) && len(plain) > 0 && plain[0] == strings.ToLower(plain[0]) && kindOf(plain[0]) != "" &&
		kindOf(plain[0]) != "snapshots" && !(cmd.Name() == "forget" && kindOf(plain[0]) == "pvc") {
		return "it takes a name without its kind"
	}
	return ""
}

func TestCommandsThatAreNoneAreSeen(t *testing.T) {
	for text, want := range map[string]string{
		"get pods --watch": "", "explain pod web": "", "knows that": "", "get pods --wach": "no flag --wach", "expln --all": "no such verb",
		"get pods -z": "no flag -z", "retry volume data": "it takes a name without its kind", "retry snapshot monday": "", "forget snapshot monday": "", "forget pvc data": "", "forget pod web": "it takes a name without its kind", "retry pvc data": "it takes a name without its kind", "who pod web": "", "delete pod web -n shop": "",
	} {
		if got := checkCommand(strings.Fields(text)); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// The advice on each cause ends in one command, which this program or kubectl has.
func TestAdviceEndsInACommandOfThisProgram(t *testing.T) {
	for _, code := range server.CauseCodes() {
		f := server.Facts{Claims: []server.ClaimStatus{{
			Namespace: "default", Name: "data", Phase: "Pending", Reason: "it waits", Cause: server.Cause{Code: code, Of: "shop/x"},
		}}}
		e, err := server.Explain(f, "pvc", "default/data")
		if err != nil {
			t.Fatal(err)
		}
		advice := e.Lines[len(e.Lines)-1]
		_, words, ours := strings.Cut(advice.Text, "csi-volmgr ")
		switch {
		case advice.Label != "you can", !ours && !strings.Contains(advice.Text, ": kubectl "):
			t.Errorf("%s: %+v names no command", code, advice)
		case ours && strings.HasPrefix(words, "apply") && strings.Contains(advice.Text, "| csi-volmgr "):
		case ours && !strings.HasSuffix(advice.Text, ": csi-volmgr "+words):
			t.Errorf("%s: more than a command at the end of %s", code, advice.Text)
		}
		if !ours {
			continue
		}
		if i := strings.LastIndex(advice.Text, "csi-volmgr "); i >= 0 {
			words = advice.Text[i+len("csi-volmgr "):]
		}
		if problem := checkCommand(strings.Fields(words)); problem != "" {
			t.Errorf("%s: csi-volmgr %s: %s", code, words, problem)
		}
	}
	if server.EmbeddedDriver != localdriver.DefaultName {
		t.Errorf("the advice names driver %s, and the daemon serves %s", server.EmbeddedDriver, localdriver.DefaultName)
	}
}
