package manager

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
)

// TestScenario plays the pages of testdata. A page is an archive: its comment says what it
// shows, and each file is a scenario. docs/testing.md explains the lines.
func TestScenario(t *testing.T) {
	pages, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(pages) == 0 {
		t.Fatalf("pages: %q, %v", pages, err)
	}
	for _, page := range pages {
		t.Run(strings.TrimSuffix(filepath.Base(page), ".txtar"), func(t *testing.T) {
			b, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			a := txtar.Parse(b)
			if len(bytes.TrimSpace(a.Comment)) == 0 || len(a.Files) == 0 {
				t.Fatalf("%s: want a comment that says what the page shows, and at least one scenario after a line like '-- name --'", page)
			}
			for _, f := range a.Files {
				t.Run(f.Name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { play(t, string(f.Data)) }) })
			}
		})
	}
}

// player plays one scenario: a node in memory, a disk, and the manager's lives.
type player struct {
	t     *testing.T
	h     *fakeNode
	d     *disk
	l     *life
	boots int
	// seen counts the calls that earlier lines have checked.
	seen  int
	rules []*rule // guarded by h.mu
	line  string
	// said is the error of the last wait that failed.
	said  string
	grown sync.Map // the sizes that the manager reported, by volume
	most  int      // the greatest number of calls at once; guarded by h.mu
}

// rule says how matching calls go wrong. left is how often; a negative left means always.
type rule struct {
	call string
	fault
	left int
	// unmounts: the call removes the mount that was published.
	unmounts bool
}

// verbs maps the first word of a line to what the line does.
var verbs = map[string]func(p *player, args []string){
	"driver": (*player).driver, "pod": (*player).pod, "wait": (*player).wait, "settle": func(*player, []string) { synctest.Wait() },
	"mounted": (*player).mounted, "unmounted": (*player).unmounted,
	"fail": (*player).fail, "lie": (*player).lie, "slow": (*player).slow, "hang": (*player).hang, "heal": (*player).heal,
	"calls": (*player).calls, "count": (*player).count, "expect": (*player).expect,
	"start": (*player).start, "stop": (*player).stop, "restart": (*player).restart, "crash": (*player).crash, "reboot": (*player).reboot,
	"synced": (*player).synced, "vanish": (*player).vanish, "look": (*player).look, "journal": (*player).journal,
	"late": (*player).late, "unsaid": (*player).unsaid, "retry": (*player).retry, "reported": (*player).reported,
}

func play(t *testing.T, text string) {
	p := &player{t: t, h: newFakeNode(t), d: newDisk(), boots: 1}
	p.h.fails(p.fault)
	defer p.end()
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, " # ")
		for _, line := range repeated(strings.TrimSpace(line)) {
			p.play(fmt.Sprintf("line %d: %s", i+1, line), split(line))
		}
	}
}

// end stops the manager and waits, in virtual time, for calls that a slow driver answers
// after the last line.
func (p *player) end() {
	if p.l != nil {
		_ = p.l.stop()
	}
	time.Sleep(3 * time.Hour)
}

// play executes one line.
func (p *player) play(line string, words []string) {
	if len(words) == 0 || strings.HasPrefix(words[0], "#") {
		return
	}
	p.line = line
	do := verbs[words[0]]
	if do == nil {
		p.fatalf("want one of these first words: %q", slices.Sorted(maps.Keys(verbs)))
	}
	if p.l == nil && words[0] != "start" {
		p.start(nil)
	}
	if do(p, words[1:]); p.t.Failed() {
		p.t.Fatal(line)
	}
}

// repeated returns the line once for each number of a range {1..20} in it.
func repeated(line string) (lines []string) {
	from := strings.Index(line, "{1..")
	if from < 0 {
		return []string{line}
	}
	last, _, _ := strings.Cut(line[from+len("{1.."):], "}")
	n, _ := strconv.Atoi(last)
	for i := range n {
		lines = append(lines, strings.ReplaceAll(line, "{1.."+last+"}", strconv.Itoa(i+1)))
	}
	return lines
}

// split returns the words of a line. Text between double quotes belongs to one word, and a
// comma is a word of its own.
func split(line string) (words []string) {
	var word strings.Builder
	quoted, any := false, false
	end := func() {
		if any {
			words = append(words, word.String())
		}
		word.Reset()
		any = false
	}
	for _, r := range line {
		switch {
		case r == '"':
			quoted, any = !quoted, true
		case quoted:
			word.WriteRune(r)
		case r == ' ' || r == '\t':
			end()
		case r == ',':
			end()
			words = append(words, ",")
		default:
			word.WriteRune(r)
			any = true
		}
	}
	end()
	return words
}

// list splits words at the commas; "none" is an empty list.
func list(words []string) (all [][]string) {
	if len(words) == 1 && words[0] == "none" {
		return nil
	}
	for len(words) > 0 {
		i := slices.Index(words, ",")
		if i < 0 {
			return append(all, words)
		}
		all, words = append(all, words[:i]), words[i+1:]
	}
	return all
}

// take removes "name value" from words and returns the value; "" if there is none.
func take(words []string, name string) (value string, rest []string) {
	if i := slices.Index(words, name); i >= 0 && i+1 < len(words) {
		return words[i+1], slices.Concat(words[:i], words[i+2:])
	}
	return "", words
}

// flag removes a word from words and reports whether words had it.
func flag(words []string, name string) (bool, []string) {
	i := slices.Index(words, name)
	if i < 0 {
		return false, words
	}
	return true, slices.Concat(words[:i], words[i+1:])
}

func (p *player) fatalf(format string, args ...any) {
	p.t.Helper()
	p.t.Fatalf("%s: %s", p.line, fmt.Sprintf(format, args...))
}

func (p *player) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		p.fatalf("%v", err)
	}
	return d
}

func (p *player) number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		p.fatalf("%v", err)
	}
	return n
}

// short returns a call as scenarios write it: volume IDs lack their driver if that is d.
func short(call string) string { return strings.ReplaceAll(call, "d^", "") }

// fault returns what goes wrong with a call, by the first matching rule that is not used up.
func (p *player) fault(call string) fault {
	p.most = max(p.most, len(p.h.inFlight))
	for _, r := range p.rules {
		if name := short(call); r.left != 0 && (r.call == "" || name == r.call || strings.HasPrefix(name, r.call+" ")) {
			r.left--
			if words := strings.Fields(name); r.unmounts && len(words) == 3 {
				delete(p.h.published, "/pods/"+words[2]+"/"+words[1])
			}
			return r.fault
		}
	}
	return fault{}
}
