package arch

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// documents returns every Markdown file below root by its slash-separated path, but for those of the
// systems below bin, which builds make.
func documents(root string) (map[string]string, error) {
	docs := map[string]string{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != root && (strings.HasPrefix(d.Name(), ".") || name == filepath.Join(root, "bin")) {
			return fs.SkipDir
		}
		if d.IsDir() || filepath.Ext(name) != ".md" {
			return nil
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		docs[filepath.ToSlash(rel)] = string(b)
		return err
	})
	return docs, err
}

// linkProblems lists a document's links to files of the tree that do not exist.
func linkProblems(name, text string, exists func(string) bool) (problems []string) {
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		u, err := url.Parse(m[1])
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: link %q: %v", name, m[1], err))
			continue
		}
		if u.Scheme != "" || u.Path == "" {
			continue
		}
		if target := path.Join(path.Dir(name), u.Path); !exists(target) {
			problems = append(problems, fmt.Sprintf("%s: links to %s, which is not there", name, target))
		}
	}
	return problems
}

// adrProblems lists the decisions that ARCHITECTURE.md does not link.
func adrProblems(docs map[string]string) (problems []string) {
	for name := range docs {
		if path.Dir(name) == "docs/adr" && path.Base(name) != "README.md" && !strings.Contains(docs["ARCHITECTURE.md"], "("+name+")") {
			problems = append(problems, name+": not linked from ARCHITECTURE.md")
		}
	}
	return problems
}

// houseProblems lists the houses below internal that ARCHITECTURE.md does not begin with: in its picture
// and, but for the list that puts them together, in a line of the table below that.
func houseProblems(architecture string) (problems []string) {
	first, _, _ := strings.Cut(architecture, "\n## The rooms")
	for _, h := range houses {
		name, inside := strings.CutPrefix(h.dir, "internal/")
		if !inside {
			continue
		}
		if !strings.Contains(first, name+`["<b>`+name+"</b>") && !strings.Contains(first, name+`["`+name+":") {
			problems = append(problems, "ARCHITECTURE.md: its first picture does not have the house "+name)
		}
		if name != "wire" && !strings.Contains(first, "\n| `"+name+"` |") {
			problems = append(problems, "ARCHITECTURE.md: its first table has no line for the house "+name)
		}
	}
	return problems
}

// roomProblems lists the rooms that are missing from the tables of ARCHITECTURE.md.
func roomProblems(architecture string) (problems []string) {
	for _, r := range rooms {
		if !strings.Contains(architecture, "\n| `"+r.dir) {
			problems = append(problems, "ARCHITECTURE.md: its tables of rooms have no line for "+r.dir)
		}
	}
	return problems
}
