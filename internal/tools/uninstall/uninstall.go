// Package uninstall removes csi-volmgr from a node: its state, its socket, and the directories that it
// made. It refuses while anything is mounted, a record is left, or volumes or snapshots that it made exist.
//
// Owns: the list of csi-volmgr's own files and directories, and the order in which they are removed.
//
// Does not: unmount, stop anything, or remove a directory that is not empty.
//
// It works without the daemon, and takes the daemon's locks.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/host/filelock"
	"github.com/csi-volmgr/csi-volmgr/internal/host/leftover"
	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/storageid"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
)

// ErrRefused means that something exists that uninstalling would lose.
var ErrRefused = errors.New("not uninstalled")

// Config is where the node has its files; see node.Config. ClaimsBucket is the journal's bucket of
// volumes that csi-volmgr made, and SnapshotBuckets are those of snapshots and of groups of them.
type Config struct {
	Root, StateDir, Socket string
	ClaimsBucket           string
	SnapshotBuckets        []string
}

// Plan is what would be removed, and what prevents it.
type Plan struct {
	// Refusals lists what must be dealt with first; if there is any, nothing is removed.
	Refusals []string
	// Files and Dirs are removed in this order; a directory only if it is empty by then.
	Files, Dirs []string
	// Kept is what stays in the directories because it is not csi-volmgr's.
	Kept []string
}

// Err returns the refusals as one error; nil if there are none.
func (p Plan) Err() error {
	if len(p.Refusals) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrRefused, strings.Join(p.Refusals, "; "))
}

// Uninstall holds the locks of the root directory and the journal, so that no daemon can use them.
type Uninstall struct {
	cfg     Config
	root    *os.File      // nil if there is none
	journal *journal.Bolt // nil if there is none
}

// New takes the locks, so that no daemon runs meanwhile. Close releases them.
func New(cfg Config) (*Uninstall, error) {
	u := &Uninstall{cfg: cfg}
	if err := u.openJournal(); err != nil {
		return nil, err
	}
	if err := u.lockRoot(); err != nil {
		return nil, errors.Join(err, u.Close())
	}
	return u, nil
}

// lockRoot locks the root directory as a daemon does: one that runs with another state directory has not
// locked this journal.
func (u *Uninstall) lockRoot() error {
	root, err := os.Open(u.cfg.Root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = filelock.Take(root)
	}
	if errors.Is(err, filelock.ErrHeld) {
		return fmt.Errorf("%w: a daemon uses %s; stop it first: %w", ErrRefused, u.cfg.Root, err)
	}
	if err != nil {
		return fmt.Errorf("lock the root directory: %w", err)
	}
	u.root = root
	return nil
}

// openJournal opens the journal, if there is one, and with that takes its lock.
func (u *Uninstall) openJournal() error {
	path := u.state("state.db")
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(path + ".spare"); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	opened, err := journal.OpenBolt(path)
	if errors.Is(err, journal.ErrLocked) {
		return fmt.Errorf("%w: the daemon runs; stop it first: %w", ErrRefused, err)
	}
	if err != nil {
		return fmt.Errorf("%w: cannot tell what is mounted: %w", ErrRefused, err)
	}
	u.journal = opened
	return nil
}

// Close releases the locks.
func (u *Uninstall) Close() error {
	err := u.closeJournal()
	if u.root != nil {
		err = errors.Join(err, u.root.Close())
		u.root = nil
	}
	return err
}

func (u *Uninstall) closeJournal() error {
	if u.journal == nil {
		return nil
	}
	err := u.journal.Close()
	u.journal = nil
	return err
}

func (u *Uninstall) state(name string) string { return filepath.Join(u.cfg.StateDir, name) }

// Plan returns what would be removed.
func (u *Uninstall) Plan(ctx context.Context) (Plan, error) {
	var p Plan
	for _, part := range []func(context.Context, *Plan) error{u.records, u.leftovers, u.localDriver, u.files} {
		if err := part(ctx, &p); err != nil {
			return Plan{}, fmt.Errorf("find what to uninstall: %w", err)
		}
	}
	return p, nil
}

// records refuses while the journal has a record of a volume, or may have had one.
func (u *Uninstall) records(ctx context.Context, p *Plan) error {
	if u.journal == nil {
		return nil
	}
	loaded, err := u.journal.Load(ctx)
	if err != nil {
		return err
	}
	if loaded.Recovery.Lost() {
		p.Refusals = append(p.Refusals,
			fmt.Sprintf("the journal may have lost its newest records, of volumes that are attached or that no other program "+
				"knows of: %s (start the daemon, see csi-volmgr get problems, and use csi-volmgr journal accept)",
				loaded.Recovery.Why))
	}
	var ids []string
	for id := range loaded.Volumes {
		ids = append(ids, string(id))
	}
	for id := range loaded.Quarantined {
		ids = append(ids, string(id)+" (which cannot be read)")
	}
	slices.Sort(ids)
	if len(ids) > 0 {
		p.Refusals = append(p.Refusals,
			fmt.Sprintf("%d volumes have records: %s (start the daemon and use csi-volmgr drain --consumers-stopped "+
				"--wait=unstaged)", len(ids), strings.Join(ids, ", ")))
	}
	claims, err := u.count(ctx, u.cfg.ClaimsBucket)
	if err != nil {
		return err
	}
	if claims > 0 {
		p.Refusals = append(p.Refusals,
			fmt.Sprintf("%d claims have volumes that csi-volmgr made and no other program knows of (start the daemon and "+
				"delete them, or move them away)", claims))
	}
	snapshots, err := u.count(ctx, u.cfg.SnapshotBuckets...)
	if err != nil {
		return err
	}
	if snapshots > 0 {
		p.Refusals = append(p.Refusals,
			fmt.Sprintf("%d snapshots and groups of snapshots are known to csi-volmgr alone (start the daemon and delete "+
				"them)", snapshots))
	}
	return nil
}

// count returns how many values buckets of the journal have.
func (u *Uninstall) count(ctx context.Context, buckets ...string) (n int, err error) {
	for _, bucket := range buckets {
		values, err := u.journal.LoadBucket(ctx, bucket)
		if err != nil {
			return 0, err
		}
		n += len(values.Sound) + len(values.Unreadable)
	}
	return n, nil
}

// leftovers refuses while something is mounted or a file is left below the volumes' directories.
func (u *Uninstall) leftovers(ctx context.Context, p *Plan) error {
	if _, err := os.Lstat(u.cfg.Root); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	items, err := u.scanner().Scan(ctx, leftover.Known{})
	if err != nil {
		return err
	}
	for _, i := range items {
		if !i.Safe {
			p.Refusals = append(p.Refusals, i.Kind+" "+i.Path+": "+i.Why)
		}
	}
	return nil
}

func (u *Uninstall) scanner() leftover.Scanner {
	return leftover.Scanner{Root: u.cfg.Root, Mounts: mount.New(u.cfg.Root).List}
}

// localDriver refuses while the embedded driver has volumes.
func (u *Uninstall) localDriver(_ context.Context, p *Plan) error {
	top := u.state("local-driver")
	var dirs []string
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case d.IsDir():
			dirs = append(dirs, path)
		case path == filepath.Join(top, "lock"):
			p.Files = append(p.Files, path)
		default:
			p.Refusals = append(p.Refusals, "the local driver may have data: "+path+" (delete its claims first)")
			return fs.SkipAll
		}
		return nil
	})
	slices.Reverse(dirs)
	p.Dirs = append(p.Dirs, dirs...)
	return err
}

// files lists csi-volmgr's files in the state directory and next to the socket.
func (u *Uninstall) files(_ context.Context, p *Plan) error {
	if err := u.stateFiles(p); err != nil {
		return err
	}
	secrets, err := readDir(u.state("secrets"))
	if err != nil {
		return err
	}
	for _, s := range secrets {
		if s.Type().IsRegular() {
			p.Files = append(p.Files, filepath.Join(u.state("secrets"), s.Name()))
		}
	}
	for _, path := range []string{u.cfg.Socket, u.cfg.Socket + ".lock", filepath.Join(filepath.Dir(u.cfg.Socket),
		"revision.key")} {
		if _, err := os.Lstat(path); err == nil {
			p.Files = append(p.Files, path)
		}
	}
	csi := filepath.Join(u.cfg.Root, "plugins", "kubernetes.io", "csi")
	drivers, err := readDir(csi)
	if err != nil {
		return err
	}
	p.Dirs = append(p.Dirs, u.state("secrets"))
	for _, e := range drivers {
		d := filepath.Join(csi, e.Name())
		p.Dirs = append(p.Dirs, filepath.Join(d, "staging"), filepath.Join(d, "publish"), d)
	}
	p.Dirs = append(p.Dirs, csi, filepath.Dir(csi), filepath.Join(u.cfg.Root, "pods"),
		filepath.Join(u.cfg.Root, "plugins"),
		filepath.Join(u.cfg.Root, "plugins_registry"), u.cfg.Root, filepath.Dir(u.cfg.Socket), u.cfg.StateDir)
	return nil
}

// stateFiles lists csi-volmgr's files in the state directory. Other files are not csi-volmgr's, such as an
// operator's copy of the journal.
func (u *Uninstall) stateFiles(p *Plan) error {
	entries, err := readDir(u.cfg.StateDir)
	if err != nil {
		return err
	}
	own := []string{
		"state.db", "state.db.lock", "state.db.spare", "state.db.spare.new", "state.db.tmp", "state.db.tmp.new",
		"state.db.damaged", "state.db.damaged.[0-9]", storageid.File, storageid.File + ".new",
		audit.NotesName, audit.NotesName + ".[0-9]",
	}
	for _, e := range entries {
		switch at := u.state(e.Name()); {
		case matchesAny(e.Name(), own):
			p.Files = append(p.Files, at)
		case matchesAny(e.Name(), []string{audit.Name, audit.Name + ".[0-9]"}):
			p.Kept = append(p.Kept, at)
		}
	}
	return nil
}

// matchesAny reports whether one of the patterns, which are valid, matches a file's name.
func matchesAny(name string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, name)
		return ok && err == nil
	})
}

// Do makes a new plan and removes what it lists. It first writes the act to the audit log, which stays.
// It returns the plan; what could not be removed is in Kept.
func (u *Uninstall) Do(ctx context.Context, by audit.By) (p Plan, err error) {
	if p, err = u.Plan(ctx); err != nil {
		return p, err
	}
	if err := p.Err(); err != nil {
		return p, err
	}
	if err := u.closeJournal(); err != nil { // it writes the spare copy once more
		return p, err
	}
	if err := os.MkdirAll(u.cfg.StateDir, 0o700); err != nil {
		return p, err
	}
	log := audit.Open(u.cfg.StateDir, nil)
	err = log.Do(audit.Act{By: by, Verb: "uninstall"}, func() (string, error) {
		return "", u.remove(ctx, &p)
	})
	err = errors.Join(err, log.Close())
	p.Kept = append(p.Kept, u.state(audit.Name))
	slices.Sort(p.Kept)
	p.Kept = slices.Compact(p.Kept)
	return p, err
}

func (u *Uninstall) remove(ctx context.Context, p *Plan) error {
	if _, err := os.Lstat(u.cfg.Root); err == nil {
		items, err := u.scanner().Remove(ctx, func() leftover.Known { return leftover.Known{} })
		if err != nil {
			return err
		}
		for _, i := range items {
			if !i.Removed {
				return fmt.Errorf("%s: %s%s", i.Path, i.Why, i.Error)
			}
		}
	}
	for _, f := range p.Files {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	p.Kept = nil
	for _, d := range p.Dirs {
		// rmdir; a directory that another program uses is no error
		if err := removeDir(d); err != nil {
			p.Kept = append(p.Kept, d)
		}
	}
	return nil
}
