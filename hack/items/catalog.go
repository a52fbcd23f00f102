package items

import (
	_ "embed"
	"fmt"
	"strings"
)

// Kind is one of the lists, named by the word that begins a claim.
type Kind string

// The lists.
const (
	Parity    Kind = "Items"
	Faults    Kind = "Faults"
	Attacks   Kind = "Attacks"
	Scenarios Kind = "Scenarios"
	Sidecars  Kind = "Sidecars"
)

// Kinds has all lists.
var Kinds = []Kind{Parity, Faults, Attacks, Scenarios, Sidecars}

// Item is one line of a list.
type Item struct {
	ID    string // "A02", "N-17", "A010", "C1", "U-12"
	Title string
	Whole string // all that the item asks, of an item of parity
}

var (
	//go:embed items.txt
	parityText string
	//go:embed faults.txt
	faultsText string
	//go:embed attacks.txt
	attacksText string
	//go:embed scenarios.txt
	scenariosText string
	//go:embed sidecars.txt
	sidecarsText string
	//go:embed sidecar-cases.txt
	sidecarCases string
)

// Catalog returns a list in its order.
func Catalog(k Kind) []Item {
	text := map[Kind]string{
		Parity: parityText, Faults: faultsText, Attacks: attacksText, Scenarios: scenariosText, Sidecars: sidecarsText,
	}[k]
	list, err := parse(text)
	if err != nil {
		panic(fmt.Sprintf("hack/items: the list %s: %v", k, err)) // built in, and tested
	}
	if k == Parity {
		for i := range list {
			list[i].Title, list[i].Whole, _ = strings.Cut(list[i].Title, "\t")
		}
	}
	return list
}

// SidecarCases returns the items of Sidecars by what a sidecar has: its name, a place and a case, with tabs between them.
func SidecarCases() (map[string]string, error) {
	all := map[string]string{}
	for n, line := range strings.Split(sidecarCases, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, what, _ := strings.Cut(line, "\t")
		switch {
		case strings.Count(what, "\t") != 2:
			return nil, fmt.Errorf("line %d: %q is not an item, a sidecar, a place and a case", n+1, line)
		case all[what] != "":
			return nil, fmt.Errorf("line %d: %q a second time", n+1, what)
		}
		all[what] = id
	}
	return all, nil
}

// Area returns the prefix that groups an item with its neighbours: the letter of "A02",
// "N-" for CSI's requirements.
func (i Item) Area() string {
	if strings.HasPrefix(i.ID, "N-") {
		return "N-"
	}
	return i.ID[:1]
}

// parse reads lines of an id, a tab and a title; a line that begins with # is
// a comment.
func parse(text string) ([]Item, error) {
	var list []Item
	seen := map[string]bool{}
	for n, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, title, ok := strings.Cut(line, "\t")
		switch {
		case !ok || id == "" || title == "":
			return nil, fmt.Errorf("line %d: %q is not an id, a tab and a title", n+1, line)
		case seen[id]:
			return nil, fmt.Errorf("line %d: %s a second time", n+1, id)
		}
		seen[id] = true
		list = append(list, Item{ID: id, Title: title})
	}
	return list, nil
}
