package storageid

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/disk"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	// File is the name of the file in the state directory.
	File = "storage-id"
	// Name is the source of problems.
	Name = "storage-id"
	// Bucket is the journal's bucket, and key its only key.
	Bucket = "storage"
	key    = "id"
	// traces is how the names of an earlier version's files of the journal begin. Its lock stays when the journal is
	// removed or moved away.
	traces = "state.db"
)

// Journal is the part of the journal that has the id, and the records of what was made.
type Journal interface {
	controller.KV
	// Recovery says whether records may be lost.
	Recovery() state.Recovery
}

// Config is what a choice follows from. Journal and Logger are required.
type Config struct {
	Journal Journal
	// Flag is the operator's id; "" if there is none.
	Flag string
	// MachineFile is where the machine's id is; "" means [MachineFile].
	MachineFile string
	// Quiet means that it is no problem if the node has no id, because it need not make volumes.
	Quiet  bool
	Logger *slog.Logger
}

// Keeper has the storage id of a node.
type Keeper struct {
	path string
	used bool

	mu       sync.Mutex
	problems []string // guarded by mu
}

// Open looks at the state directory, and makes it if it does not exist. It must be called before the journal is
// opened, which leaves traces there.
func Open(dir string) (*Keeper, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state directory: %w", err)
	}
	k := &Keeper{path: filepath.Join(dir, File)}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("look for an earlier version's journal: %w", err)
	}
	k.used = slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return strings.HasPrefix(e.Name(), traces) })
	if stored := Read(dir); k.used || stored != (Stored{}) {
		return k, nil
	}
	if err := k.write(content{}); err != nil {
		return nil, fmt.Errorf("note that no storage id was chosen yet: %w", err)
	}
	return k, nil
}

// Chooser returns a function that chooses the storage id, or finds the one that was chosen before. It returns the
// id, "" for none, or why no name may be formed yet. Its error wraps ErrContradicted, or says that the journal
// cannot be read.
func (k *Keeper) Chooser(c Config) func(context.Context) (id, missing string, err error) {
	return func(ctx context.Context) (id, missing string, err error) {
		chosen, err := k.choose(ctx, c)
		if err != nil {
			return "", "", err
		}
		for _, p := range chosen.Problems {
			c.Logger.Warn("storage id needs an operator", "problem", p)
		}
		k.mu.Lock()
		k.problems = chosen.Problems
		k.mu.Unlock()
		if chosen.Record == nil {
			return "", chosen.Missing, nil
		}
		c.Logger.Info("storage id of this node", "id", chosen.String(), "from", string(chosen.From))
		return chosen.ID, "", nil
	}
}

// choose makes the choice and makes it durable.
func (k *Keeper) choose(ctx context.Context, c Config) (choice, error) {
	known, err := k.gather(ctx, c)
	if err != nil {
		return choice{}, fmt.Errorf("find the storage id: %w", err)
	}
	chosen, err := choose(known)
	if err != nil {
		return choice{}, err
	}
	if c.Quiet && chosen.Record == nil {
		chosen.Problems = nil
	}
	if err := k.store(ctx, c.Journal, chosen); err != nil {
		problem := "the storage id cannot be written: " + err.Error() + "; start csi-volmgr run again when it can"
		chosen.Problems = append(chosen.Problems, problem)
		if known.recorded() == nil { // no place has it
			chosen.Record, chosen.Missing = nil, problem
		}
	}
	return chosen, nil
}

// gather collects what the choice follows from.
func (k *Keeper) gather(ctx context.Context, c Config) (known, error) {
	out := known{
		Flag: c.Flag, File: Read(filepath.Dir(k.path)), Used: k.used, Records: c.Journal.Recovery().Lost(),
	}
	if c.MachineFile == "" {
		c.MachineFile = MachineFile
	}
	var err error
	if out.Machine, err = FromMachine(c.MachineFile); err != nil {
		out.NoMachine = err.Error()
	}
	stored, err := c.Journal.LoadBucket(ctx, Bucket)
	if err != nil {
		return out, err
	}
	out.Journal = inJournal(stored)
	for _, bucket := range []string{controller.Bucket, controller.SnapshotBucket, controller.GroupBucket} {
		values, err := c.Journal.LoadBucket(ctx, bucket)
		if err != nil {
			return out, err
		}
		has := len(values.Sound)+len(values.Unreadable) > 0
		out.Records, out.Volumes = out.Records || has, out.Volumes || has && bucket == controller.Bucket
	}
	return out, nil
}

// inJournal returns what the journal says.
func inJournal(stored state.Values) Stored {
	if why := stored.Unreadable[key]; why != "" {
		return Stored{Damaged: "the journal: " + why}
	}
	b, ok := stored.Sound[key]
	if !ok {
		return Stored{}
	}
	var r Record
	if err := json.Unmarshal(b, &r); err != nil {
		return Stored{Damaged: fmt.Sprintf("the journal: %v", err)}
	}
	return Stored{Chosen: &r}
}

// store makes a choice durable.
func (k *Keeper) store(ctx context.Context, kv controller.KV, c choice) error {
	if c.Record == nil {
		return nil
	}
	if c.File {
		if err := k.write(content{Record: c.Record}); err != nil {
			return err
		}
	}
	if !c.Journal {
		return nil
	}
	b, err := json.Marshal(c.Record)
	if err != nil {
		return err
	}
	return kv.CommitBucket(ctx, Bucket, map[string][]byte{key: b})
}

// Problems lists what an operator has to look at.
func (k *Keeper) Problems() (out []source.Problem) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.problems {
		out = append(out, source.Problem{Provider: Name, Where: k.path, Text: p})
	}
	return out
}

// content is what the file has, as JSON.
type content struct {
	// Record is nil while none was chosen.
	*Record `json:"chosen"`
	// Sum is the CRC-32C of the id and where it comes from.
	Sum string `json:"crc"`
}

func (c content) sum() string {
	var of string
	if c.Record != nil {
		of = c.ID + "\n" + string(c.From)
	}
	return fmt.Sprintf("%08x", crc32.Checksum([]byte(of), crc32.MakeTable(crc32.Castagnoli)))
}

// write replaces the file durably.
func (k *Keeper) write(c content) error {
	c.Sum = c.sum()
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return disk.WriteFile(k.path, append(b, '\n'))
}

// Read returns what the file in a state directory says.
func Read(dir string) Stored {
	path := filepath.Join(dir, File)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return Stored{}
	}
	if err != nil {
		return Stored{Damaged: err.Error()}
	}
	var c content
	if err := json.Unmarshal(b, &c); err != nil {
		return Stored{Damaged: fmt.Sprintf("%s: %v", path, err)}
	}
	if c.Sum != c.sum() {
		return Stored{Damaged: path + ": checksum mismatch"}
	}
	return Stored{Chosen: c.Record, Unset: c.Record == nil}
}
