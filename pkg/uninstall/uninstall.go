// Package uninstall removes csi-volmgr from a node: its state, its socket, and the directories that it
// made. It refuses while anything is mounted, a record is left, or volumes or snapshots that it made exist.
//
// Owns: the list of csi-volmgr's own files and directories, and the order in which they are removed.
//
// Does not: unmount, stop anything, or remove a directory that is not empty.
//
// It works without the daemon, and takes the daemon's lock.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/audit"
	"github.com/csi-volmgr/csi-volmgr/pkg/leftover"
	"github.com/csi-volmgr/csi-volmgr/pkg/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
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

// Uninstall holds the journal's lock, so that no daemon can use it.
type Uninstall struct {
	cfg     Config
	journal *state.Bolt // nil if there is none
}

// New takes the journal's lock, so that no daemon runs meanwhile. Close releases it.
func New(cfg Config) (*Uninstall, error) {
	u := &Uninstall{cfg: cfg}
	path := u.state("state.db")
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(path + ".spare"); errors.Is(err, fs.ErrNotExist) {
			return u, nil
		}
	}
	var err error
	if u.journal, err = state.OpenBolt(path); errors.Is(err, state.ErrLocked) {
		return nil, fmt.Errorf("%w: the daemon runs; stop it first: %w", ErrRefused, err)
	} else if err != nil {
		return nil, fmt.Errorf("%w: cannot tell what is mounted: %w", ErrRefused, err)
	}
	return u, nil
}

// Close releases the lock.
func (u *Uninstall) Close() error {
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

// records refuses while the journal has a record of a volume.
func (u *Uninstall) records(ctx context.Context, p *Plan) error {
	if u.journal == nil {
		return nil
	}
	loaded, err := u.journal.Load(ctx)
	if err != nil {
		return err
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
		case filepath.Dir(path) == top:
			p.Files = append(p.Files, path) // its lock
		default:
			p.Refusals = append(p.Refusals, "the local driver has data: "+path+" (delete its claims first)")
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
	own := []string{"state.db", "state.db.*", audit.NotesName + "*"}
	for _, pattern := range own {
		found, err := filepath.Glob(u.state(pattern))
		if err != nil {
			return err
		}
		p.Files = append(p.Files, found...)
	}
	secrets, err := os.ReadDir(u.state("secrets"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
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
	drivers, _ := filepath.Glob(filepath.Join(csi, "*")) // the pattern is good
	p.Dirs = append(p.Dirs, u.state("secrets"))
	for _, d := range drivers {
		p.Dirs = append(p.Dirs, filepath.Join(d, "staging"), filepath.Join(d, "publish"), d)
	}
	p.Dirs = append(p.Dirs, csi, filepath.Dir(csi), filepath.Join(u.cfg.Root, "pods"),
		filepath.Join(u.cfg.Root, "plugins"),
		filepath.Join(u.cfg.Root, "plugins_registry"), u.cfg.Root, filepath.Dir(u.cfg.Socket), u.cfg.StateDir)
	logs, _ := filepath.Glob(u.state(audit.Name + "*"))
	p.Kept = append(p.Kept, logs...)
	return nil
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
	if err := u.Close(); err != nil { // it writes the spare copy once more
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
