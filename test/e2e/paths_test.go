package e2e

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// pathRow is a path of docs/reference/paths.md, as its text and as a pattern.
type pathRow struct {
	text    string
	pattern *regexp.Regexp
	// parent is the pattern of the path's directory.
	parent *regexp.Regexp
	// rare: the path appears only after events that this test does not cause.
	rare bool
}

var (
	pathSpan = regexp.MustCompile("`([^`]+)`")
	pathName = regexp.MustCompile(`<[^>]+>`)
)

// patternOf returns a regular expression for a path of the page.
func patternOf(path string) string {
	pattern := pathName.ReplaceAllStringFunc(regexp.QuoteMeta(path), func(name string) string {
		if name == "<kind>" {
			return "kubernetes[.]io/[^/]+"
		}
		return "[^/]+"
	})
	return strings.ReplaceAll(pattern, `\*`, "[^/]*")
}

// pathRows reads the page for a node. A path that ends in a slash is a directory with any
// content. Files of a kubelet and paths outside the daemon's directories get no row.
func (n *node) pathRows() (rows []pathRow) {
	n.T.Helper()
	page, err := os.ReadFile("../../docs/reference/paths.md")
	must(n.T, err)
	roots := map[byte]string{'R': n.Root, 'S': n.Path("state"), 'A': n.Socket}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| `") || len(cells) != 4 || cells[2] == "a kubelet" {
			continue
		}
		for _, m := range pathSpan.FindAllStringSubmatch(cells[0], -1) {
			root, below := roots[m[1][0]], m[1][1:]
			if root == "" || below != "" && below[0] != '/' && below[0] != '.' {
				continue
			}
			path := filepath.Join(root, below)
			if below != "" && below[0] == '.' {
				path = root + below
			}
			whole := patternOf(path)
			if strings.HasSuffix(below, "/") {
				whole += "(/.*)?"
			}
			rows = append(rows, pathRow{
				text: m[1], pattern: regexp.MustCompile("^" + whole + "$"), parent: regexp.MustCompile("^" + patternOf(filepath.Dir(path)) + "$"),
				rare: strings.Contains(m[1], "<n>") || strings.Contains(m[1], "<1 to 4>") || strings.Contains(m[1], "/<kind>/") ||
					strings.HasSuffix(m[1], ".new") || strings.HasSuffix(m[1], ".tmp"),
			})
		}
	}
	if len(rows) < 15 {
		n.T.Fatalf("the page has %d paths", len(rows))
	}
	return rows
}

// compare marks in seen the rows that match a path. It fails the test for each file, link,
// mount and empty directory that matches no row, except a directory whose documented
// content is gone.
func (n *node) compare(rows []pathRow, seen map[string]bool) {
	n.T.Helper()
	mounts := n.Mounts()
	for _, top := range []string{n.Root, n.Path("state"), filepath.Dir(n.Socket)} {
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // the daemon has just removed or renamed it
			}
			must(n.T, err)
			told, above := false, false
			for _, r := range rows {
				if r.pattern.MatchString(path) {
					told, seen[r.text] = true, true
				}
				above = above || r.parent.MatchString(path)
			}
			entire := !d.IsDir() || slices.Contains(mounts, path)
			if d.IsDir() && !entire {
				in, err := os.ReadDir(path)
				if errors.Is(err, fs.ErrNotExist) {
					return fs.SkipDir
				}
				must(n.T, err)
				entire = len(in) == 0
			}
			if entire && !told && !(d.IsDir() && above) {
				n.T.Errorf("docs/reference/paths.md does not tell of %s", strings.TrimPrefix(path, n.Dir))
			}
			if d.IsDir() && told && !above && path != n.Root {
				return fs.SkipDir
			}
			return nil
		})
		must(n.T, err)
	}
}

// The page lists every path on a node with volumes of all kinds that this machine can have,
// and no path that does not exist.
func TestPathsPageIsOfWhatIsThere(t *testing.T) {
	localOnly(t)
	n := newPlace(t)
	n.flags = documented(t)
	n.start()
	n.Do("", "apply", "-f", "../../examples/")
	n.Mounted("web")
	n.Mounted("more")
	n.Do("", "get", "mounts", "--pod", "web", "--container", "web")
	n.Do("", "drain", "--reason", "a line for the audit log")
	n.Do("", "undrain")
	rows, seen := n.pathRows(), map[string]bool{}
	n.compare(rows, seen)
	n.daemon.Stop()
	n.compare(rows, seen)
	must(t, os.WriteFile(n.Path("state/state.db"), []byte("damaged"), 0o600))
	n.start()
	n.Mounted("web")
	n.compare(rows, seen)
	for _, r := range rows {
		if !seen[r.text] && !r.rare {
			t.Errorf("docs/reference/paths.md tells of %s, and there is none", r.text)
		}
		if rare := (state.Layout{Root: n.Root}).BuiltinStagePath("kubernetes.io/iscsi", "v"); strings.Contains(r.text, "/<kind>/") && !r.pattern.MatchString(rare) {
			t.Errorf("docs/reference/paths.md: %s is not %s", r.text, rare)
		}
	}
	n.DeletePods("web", "more")
	n.DeleteClaims("data", "disk")
}
