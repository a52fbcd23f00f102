package arch

import (
	"bytes"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// maxPhrases is how many phrases of docs/style.md the tree may still have. It goes down,
// never up: reword the new sentence.
const maxPhrases = 14

// phrase matches what docs/style.md asks writers to avoid, since each hides an actor.
var phrase = regexp.MustCompile(`(?i)\b(nobody|whoever|somebody|what is told|of which|so long|by now)\b`)

// A phrasing is one phrase at a line of a file.
type phrasing struct {
	at, text string
	changed  time.Time // when the file was last written
}

func TestPhrasesThatHideAnActorGetFewer(t *testing.T) {
	found := phrasingsBelow(t, os.DirFS(root))
	if len(found) <= maxPhrases {
		return
	}
	t.Errorf("%d phrases that docs/style.md names, %d at the most: name the actor instead; in the files changed last:", len(found), maxPhrases)
	slices.SortStableFunc(found, func(a, b phrasing) int { return b.changed.Compare(a.changed) })
	for _, p := range found[:len(found)-maxPhrases] {
		t.Errorf("%s: %q", p.at, p.text)
	}
}

func TestPhrasesAreWholeWordsOfAnyCase(t *testing.T) {
	text := "Whoever knows, by now.\nnobodys, of whichever, NOBODY\nso longer; SOMEBODY's"
	got := phrasingsIn("a.md", []byte(text), time.Time{})
	want := []phrasing{
		{at: "a.md:1", text: "Whoever"},
		{at: "a.md:1", text: "by now"},
		{at: "a.md:2", text: "NOBODY"},
		{at: "a.md:3", text: "SOMEBODY"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// phrasingsBelow returns the phrases in pkg, cmd, docs and the documents at the top.
func phrasingsBelow(t *testing.T, tree fs.FS) (found []phrasing) {
	t.Helper()
	names, err := fs.Glob(tree, "*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"pkg", "internal", "cmd", "docs"} {
		err := fs.WalkDir(tree, dir, func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && name != "docs/style.md" {
				names = append(names, name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.IndexByte(text, 0) >= 0 {
			continue // not text
		}
		info, err := fs.Stat(tree, name)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, phrasingsIn(name, text, info.ModTime())...)
	}
	return found
}

func phrasingsIn(name string, text []byte, changed time.Time) (found []phrasing) {
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		for _, p := range phrase.FindAllString(line, -1) {
			found = append(found, phrasing{at: name + ":" + strconv.Itoa(n), text: p, changed: changed})
		}
	}
	return found
}
