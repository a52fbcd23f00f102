package storageid

import (
	"errors"
	"strings"
	"testing"
)

// place returns what a place says, by a word.
func place(word string) Stored {
	switch word {
	case "":
		return Stored{}
	case "unset":
		return Stored{Unset: true}
	case "damaged":
		return Stored{Damaged: "bad"}
	case "earlier":
		return Stored{Chosen: &Record{From: Earlier}}
	case "m1", "m2":
		return Stored{Chosen: &Record{word, Machine}}
	}
	return Stored{Chosen: &Record{word, Operator}}
}

// everything calls visit with every combination of what a choice follows from.
func everything(visit func(known)) {
	for _, flag := range []string{"", None, "a", "b"} {
		for _, machine := range []string{"", "m1", "m2"} {
			for _, journal := range []string{"", "damaged", "earlier", "a", "m1"} {
				for _, file := range []string{"", "unset", "damaged", "earlier", "a", "b", "m1"} {
					for bits := range 8 {
						visit(known{
							Flag: flag, Machine: machine, NoMachine: "no id", Journal: place(journal), File: place(file),
							Used: bits&1 > 0, Volumes: bits&2 > 0, Records: bits&6 > 0,
						})
					}
				}
			}
		}
	}
}

// after returns what the next start knows: what was written, and what was there.
func (k known) after(c choice) known {
	k.Used = true
	if c.Journal {
		k.Journal = Stored{Chosen: c.Record}
	}
	if c.File {
		k.File = Stored{Chosen: c.Record}
	}
	return k
}

// Whatever a start finds, the rules of a choice hold.
func TestTheChoiceKeepsItsRules(t *testing.T) {
	n, chosen, waits, refused := 0, 0, 0, 0
	everything(func(k known) {
		n++
		c, err := choose(k)
		wrong := func(what string) { t.Errorf("%s: %+v gives %+v, %v", what, k, c, err) }
		silent := k.Journal == Stored{}
		switch {
		case err != nil:
			refused++
			if !errors.Is(err, ErrContradicted) || k.Flag == "" || k.recorded() == nil || k.recorded().ID == k.flag().ID {
				wrong("refused without a contradiction")
			}
			return
		case c.Record == nil:
			waits++
			if c.Missing == "" || len(c.Problems) == 0 || c.Journal || c.File || k.Flag != "" {
				wrong("it waits without a word, writes, or waits for what the operator gave")
			}
			if k.Machine != "" && k.Journal.Damaged+k.File.Damaged == "" {
				wrong("it waits and has the machine's id")
			}
			return
		}
		chosen++
		id := c.ID
		switch {
		case k.Flag != "" && id != k.flag().ID:
			wrong("not the operator's")
		case k.Journal.Chosen != nil && id != k.Journal.Chosen.ID:
			wrong("not the journal's")
		case silent && k.File.Chosen != nil && id != k.File.Chosen.ID && !(k.Volumes && k.Flag == None):
			wrong("not the file's after a lost journal")
		case silent && k.File.Chosen == nil && k.Volumes && id != "":
			wrong("an earlier version's volumes have names without one")
		case silent && k.File == Stored{} && k.Used && k.Flag == "" && id != "":
			wrong("an earlier version's journal may have lost its volumes")
		case k.Journal.Chosen == nil && k.File.Chosen == nil && k.Journal.Damaged+k.File.Damaged != "" && k.Flag == "" && !(silent && k.Volumes):
			wrong("guessed")
		}
		next := k.after(c)
		if next.Journal.Chosen == nil || next.Journal.Chosen.ID != id {
			wrong("the journal does not have it")
		}
		if (next.File.Chosen == nil || next.File.Chosen.ID != id) != (len(c.Problems) > 0 && strings.Contains(c.Problems[0], "the journal is of a node")) {
			wrong("the file does not have it, and no problem says so")
		}
		never(t, next, id)
	})
	if n != 4*3*5*7*8 || chosen == 0 || waits == 0 || refused == 0 {
		t.Errorf("%d combinations: %d chosen, %d wait, %d refused", n, chosen, waits, refused)
	}
}

// never fails the test if a later start gives another id: with another flag or machine, without the journal, or
// without the file.
func never(t *testing.T, k known, id string) {
	t.Helper()
	lost := k
	lost.Journal, lost.Volumes, lost.Records = Stored{}, false, true
	bare := k
	bare.File = Stored{}
	starts := []known{k, bare}
	if k.File.Chosen.ID == id {
		starts = append(starts, lost)
	}
	for _, k := range starts {
		for _, k.Machine = range []string{"", "m1", "m2"} {
			for _, k.Flag = range []string{"", None, "a", "b", "m1"} {
				switch c, err := choose(k); {
				case err != nil && k.Flag != "" && k.flag().ID != id:
				case err != nil || c.Record == nil || c.ID != id:
					t.Errorf("%q became %+v, %v: %+v", id, c, err, k)
				}
			}
		}
	}
}

// An operator reads what to do, and what was recorded.
func TestWhatIsSaidOfAChoice(t *testing.T) {
	for name, tc := range map[string]struct {
		known known
		words string
	}{
		"no machine id":       {known{NoMachine: "the machine has no id", File: place("unset")}, "--storage-id= and a name that no other node has"},
		"both damaged":        {known{Machine: "m1", Journal: place("damaged"), File: place("damaged")}, "is lost (bad)"},
		"another machine":     {known{Machine: "m2", Journal: place("m1"), File: place("m1")}, "m1, is that of another machine's id"},
		"told of the machine": {known{Flag: "m1", Machine: "m2", Journal: place("m1"), File: place("m1")}, ""},
		"places differ":       {known{Journal: place("a"), File: place("b")}, "run once with --storage-id=a"},
		"another flag":        {known{Flag: "b", Journal: place("a"), File: place("a")}, "--storage-id=b: this node has another storage id: a"},
		"a flag, and volumes": {known{Flag: "b", Used: true, Volumes: true, Records: true}, "or with --storage-id=none"},
		"a flag, no volumes":  {known{Flag: "b", Used: true}, ""},
		"as recorded":         {known{Flag: "a", Machine: "m2", Journal: place("a"), File: place("a")}, ""},
	} {
		c, err := choose(tc.known)
		said := strings.Join(c.Problems, "\n")
		if err != nil {
			said = err.Error()
		}
		if tc.words == "" && said != "" || !strings.Contains(said, tc.words) {
			t.Errorf("%s: %q, want %q", name, said, tc.words)
		}
	}
	if c, _ := choose(known{Flag: "m1", Machine: "m2", Journal: place("m1"), File: place("m1")}); c.From != Operator || !c.Journal || !c.File {
		t.Errorf("what the operator said of a machine's id is not kept: %+v", c)
	}
}

func TestTheFormOfAStorageID(t *testing.T) {
	for id, good := range map[string]bool{
		"": true, None: true, "rack-3.node_7:a": true, strings.Repeat("a", 64): true, strings.Repeat("a", 65): false, "-a": false, "a b": false, "a/b": false, "ä": false,
	} {
		if err := Check(id); (err == nil) != good {
			t.Errorf("%q: %v", id, err)
		}
	}
}
