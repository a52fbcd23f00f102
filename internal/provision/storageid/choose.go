package storageid

import (
	"errors"
	"fmt"
	"regexp"
)

// None is how an operator writes that a node has no storage id.
const None = "none"

// ErrContradicted means that the operator's storage id is not the one that the node has.
var ErrContradicted = errors.New("this node has another storage id")

// valid is the form of a storage id of at most maxID bytes.
var valid = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]*$`)

const maxID = 64

// Check says what is wrong with an operator's storage id; nil if nothing is, or if there is none.
func Check(id string) error {
	if id != "" && (len(id) > maxID || !valid.MatchString(id)) {
		return fmt.Errorf("expected 1 to 64 letters, digits, dots, colons, dashes and underscores, or %s", None)
	}
	return nil
}

// Origin says where a storage id comes from.
type Origin string

// The origins.
const (
	// Operator: an operator gave it.
	Operator Origin = "operator"
	// Machine: it follows from the machine's id.
	Machine Origin = "machine-id"
	// Earlier: an earlier version used the node, and it has none.
	Earlier Origin = "earlier-version"
)

// Record is a storage id that was chosen. Its ID is "" if the node has none.
type Record struct {
	ID   string `json:"id"`
	From Origin `json:"from"`
}

// String returns the id, or the word for none.
func (r Record) String() string {
	if r.ID == "" {
		return None
	}
	return r.ID
}

// Stored is what one of the two places says. At most one field is set; none if the place says nothing.
type Stored struct {
	// Chosen is the id that was chosen.
	Chosen *Record
	// Unset means that the place was made by a version that chooses one, and that none was chosen yet.
	Unset bool
	// Damaged says why the place cannot be read.
	Damaged string
}

// known is what a choice follows from.
type known struct {
	// Flag is the operator's id; "" if there is none.
	Flag string
	// Machine is the id that follows from the machine's; "" if it has none, for the reason NoMachine.
	Machine, NoMachine string
	Journal, File      Stored
	// Used means that the state directory had a journal before this version used it.
	Used bool
	// Volumes means that the journal has records of volumes that the node made. Records means that it has such,
	// or records of snapshots, or may have lost some.
	Volumes, Records bool
}

// choice is the storage id of the node. If it is nil, no name may be formed, for the reason Missing.
type choice struct {
	*Record
	Missing string
	// Problems lists what an operator has to look at.
	Problems []string
	// Journal and File mean that the place has to be written.
	Journal, File bool
}

// flag returns the operator's id as a record.
func (k known) flag() *Record {
	r := Record{From: Operator}
	if k.Flag != None {
		r.ID = k.Flag
	}
	return &r
}

// recorded returns the id that was chosen before; nil if there is none.
//
// The journal wins over the file, because its records are those of the volumes that were made with its id. A
// journal with volumes and without an id is of an earlier version, since this one chooses before it makes the
// first. An earlier version's journal without records proves nothing, since it may have lost them; the file is
// missing then, because this version never used the state directory.
func (k known) recorded() *Record {
	earlier := k.Journal == Stored{} && k.Volumes
	switch {
	case k.Journal.Chosen != nil:
		return k.Journal.Chosen
	case k.File.Chosen != nil && !(earlier && k.Flag == None):
		return k.File.Chosen
	case earlier, k.Journal == Stored{} && k.File == Stored{} && k.Used && (k.Flag == "" || k.Records):
		return &Record{From: Earlier}
	}
	return nil
}

// choose returns the node's storage id. Its error wraps ErrContradicted.
func choose(k known) (choice, error) {
	if r := k.recorded(); r != nil {
		return k.keep(*r)
	}
	damaged := k.Journal.Damaged
	if damaged == "" {
		damaged = k.File.Damaged
	}
	switch {
	case k.Flag != "":
		return choice{Record: k.flag(), Journal: true, File: true}, nil
	case damaged != "":
		why := fmt.Sprintf("the storage id of this node is lost (%s), and without it the volumes that the node has made "+
			"are not found: start csi-volmgr run with --storage-id= and the id that its log, or csi-volmgr doctor, showed "+
			"before", damaged)
		return choice{Missing: why, Problems: []string{why}}, nil
	case k.Machine != "":
		return choice{Record: &Record{k.Machine, Machine}, Journal: true, File: true}, nil
	}
	why := fmt.Sprintf("this node has no storage id, which tells its volumes from those of other nodes with the same "+
		"storage (%s): start csi-volmgr run with --storage-id= and a name that no other node has", k.NoMachine)
	return choice{Missing: why, Problems: []string{why}}, nil
}

// keep returns the choice of an id that was chosen before.
func (k known) keep(r Record) (choice, error) {
	if k.Flag != "" && k.flag().ID != r.ID {
		why := "its volumes are found under that one only"
		if r.From == Earlier {
			why = "an earlier version used it, whose volumes are found without one only"
		}
		return choice{}, fmt.Errorf("--storage-id=%s: %w: %s; %s: start csi-volmgr run without --storage-id, or with "+
			"--storage-id=%s", k.Flag, ErrContradicted, r, why, r)
	}
	c := choice{Journal: k.Journal.Chosen == nil}
	moved := r.From == Machine && k.Machine != "" && k.Machine != r.ID
	if moved && k.Flag != "" { // the operator knows of it
		r.From, c.Journal, c.File = Operator, true, true
	}
	c.Record = &r
	file := k.File.Chosen
	switch {
	case file == nil, k.Flag != "" && file.ID != r.ID:
		c.File = true
	case file.ID != r.ID:
		c.Problems = append(c.Problems, fmt.Sprintf("the journal is of a node with the storage id %s, which is used, and "+
			"this file says %s: a node that loses the journal would not find its volumes. If %s is right, start csi-volmgr "+
			"run once with --storage-id=%s, which writes the file anew", r, file, r, r))
	}
	if moved && k.Flag == "" {
		c.Problems = append(c.Problems, fmt.Sprintf("the storage id of this node, %s, is that of another machine's id. If "+
			"this node is a copy of another one, the two make one volume for two claims of one name: stop the daemon of the "+
			"copy, move its state directory away and start it anew. If the machine was replaced or got another id, start "+
			"csi-volmgr run once with --storage-id=%s", r, r))
	}
	return c, nil
}
