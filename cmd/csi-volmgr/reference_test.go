package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/manifest"
)

const configPage = "../../docs/reference/config.md"

// said finds a default that the text of a flag states itself, since it is not the flag's
// own default.
var said = regexp.MustCompile(` \(default ([^)]+)\)$`)

// configRows returns the fields of the configuration file as rows of a table, made from their flags.
func configRows() (rows []string) {
	cmd, _, err := new(program).root().Find([]string{"run"})
	if err != nil {
		panic(err) // the verb exists
	}
	all := pflag.NewFlagSet("all", pflag.ContinueOnError)
	all.AddFlagSet(cmd.LocalFlags())
	all.AddFlagSet(cmd.InheritedFlags())
	all.VisitAll(func(f *pflag.Flag) {
		if strings.Contains(notInFile, " "+f.Name+" ") {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		initial := f.DefValue
		if m := said.FindStringSubmatch(usage); m != nil {
			initial, usage = m[1], strings.TrimSuffix(usage, m[0])
		}
		switch _, repeatable := f.Value.(interface{ Append(string) error }); {
		case f.Value.Type() == "bool":
			value = "true or false"
		case repeatable:
			value, usage = "["+value+", ...]", strings.Replace(usage, "; repeatable", "", 1)
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |\n", f.Name, strings.ReplaceAll(value, "|", ", "), cmp.Or(initial, "none"), usage))
	})
	return rows
}

// The page has each field of the configuration file with the type and default of its flag,
// and no other field.
func TestConfigurationPageHasEveryField(t *testing.T) {
	b, err := os.ReadFile(configPage)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(b), "| --- | --- | --- | --- |\n")
	table, tail, end := strings.Cut(rest, "\n\n")
	if !found || !end {
		t.Fatalf("%s has no table of fields", configPage)
	}
	want := strings.Join(configRows(), "")
	if *update {
		text := head + "| --- | --- | --- | --- |\n" + want + "\n" + tail
		if err := os.WriteFile(configPage, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if table+"\n" != want {
		t.Errorf("%s is not of this program (`make docs` writes it anew):\n got %s\nwant %s", configPage, table, want)
	}
}

// configBlock finds the configuration files in documents.
var configBlock = regexp.MustCompile("(?ms)^ *```yaml config\n(.*?)^ *```$")

// Every configuration file in the documents is valid.
func TestConfigurationsInDocumentsAreRead(t *testing.T) {
	found := 0
	err := filepath.WalkDir("../../docs", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".md" {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range configBlock.FindAllStringSubmatch(string(b), -1) {
			found++
			if _, code, stderr := started(t, m[1]); code != 0 {
				t.Errorf("%s: exit code %d %s of\n%s", path, code, stderr, m[1])
			}
		}
		return nil
	})
	if err != nil || found < 2 {
		t.Errorf("%d configurations were found, %v", found, err)
	}
}

// The page of the command line has the help of each verb and of each subcommand; make
// docs-test compares the texts.
func TestCommandLinePageHasEveryCommand(t *testing.T) {
	b, err := os.ReadFile("../../docs/reference/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range verbs() {
		if !strings.Contains(string(b), "\n## csi-volmgr "+name+"\n") {
			t.Errorf("docs/reference/cli.md has no help of %s: `make docs` writes it", name)
		}
	}
}

// The help of apply names each kind that a manifest may hold.
func TestApplySaysWhichKindsItTakes(t *testing.T) {
	cmd := verbs()["apply"]
	for _, kind := range manifest.KindNames() {
		if !regexp.MustCompile(`(?m)(^| )` + kind + `(,|$)`).MatchString(cmd.Long) {
			t.Errorf("the help of apply lacks %s:\n%s", kind, cmd.Long)
		}
	}
	for line := range strings.SplitSeq(cmd.Long, "\n") {
		if len(line) > 90 || strings.HasSuffix(line, " ") {
			t.Errorf("a line of it is %q", line)
		}
	}
}
