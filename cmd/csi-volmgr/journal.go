package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
)

// journalCommand has the verbs for the journal. All but accept read its file while no daemon runs.
func (p *program) journalCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "journal (accept|check|export|repair)",
		Short: "Check, repair or export the journal, or accept that it lost records",
		Long: `The journal, state.db in --state-dir, is the daemon's record of volumes, claims and
applied objects. The daemon checks it at every start, sets damaged values apart, and
uses the spare copy if the file as a whole is damaged. check, repair and export read
the file: stop the daemon first. accept needs the daemon.`,
		Example: "  systemctl stop csi-volmgr\n  csi-volmgr journal check",
		Args:    knownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&dir, "state-dir", defaultState, "`directory` of the journal")
	verb := func(name, short, long string, run func(cmd *cobra.Command, path string) error) *cobra.Command {
		return &cobra.Command{
			Use: name, Short: short, Long: long, Args: noArgs,
			Example: "  systemctl stop csi-volmgr\n  csi-volmgr journal " + name,
			RunE: func(cmd *cobra.Command, _ []string) error {
				if err := p.needRoot(cmd); err != nil {
					return err
				}
				return run(cmd, filepath.Join(dir, "state.db"))
			},
		}
	}
	cmd.AddCommand(
		p.acceptCommand(),
		verb("check", "Check whether the journal and its spare copy are sound",
			`Read the journal and its spare copy, change nothing, and name what is damaged by bucket
and key. The exit code is 1 unless the journal is sound.`,
			func(_ *cobra.Command, path string) error { return p.checkJournal(path) }),
		verb("repair", "Repair the journal from its spare copy",
			`Open the journal as a start does, and replace each value that cannot be read by that of
the spare copy. The next daemon examines each such volume again. A value that the spare
copy lacks stays set apart; the exit code is then 1.`, p.repairJournal),
		verb("export", "Write all values of the journal, one JSON object per line",
			`Write each value of the journal with its bucket and key as a JSON object on one line. For
a value that cannot be read, the object says why and has its bytes in base64. It has no secrets.`,
			func(_ *cobra.Command, path string) error { return p.exportJournal(path) }),
	)
	return cmd
}

func (p *program) acceptCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "accept --reason=TEXT",
		Short: "Confirm that no pod uses the mounts that have no record",
		Long: `Confirm that no pod uses the mounts below the root that have no record, after the journal
lost records. Until then each of them counts as in use, and the daemon neither gives
its volume to other pods nor deletes it. csi-volmgr get problems lists them.

Be sure that no container and no program uses any of them. The mounts stay, and
csi-volmgr gc lists them. The reason goes to the audit log.`,
		Example: `  csi-volmgr journal accept --reason="all pods of this node were deleted; looked with findmnt"`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if strings.TrimSpace(reason) == "" {
				return usagef("say with --reason why no pod uses the mounts that have no record")
			}
			c := p.client()
			defer c.Close()
			places, err := c.AcceptRecovery(cmd.Context(), reason)
			if err != nil {
				return err
			}
			var out strings.Builder
			for _, place := range places {
				fmt.Fprintf(&out, "no longer managed: %s\n", plain(place.Path))
			}
			return writeAll(p.stdout, out.String()+"accepted\n")
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why no pod uses it, in `words`, for the audit log")
	return cmd
}

// journalThere fails if there is neither a journal at path nor its spare copy.
func journalThere(file, spare journal.Inspection) error {
	if errors.Is(file.Err, fs.ErrNotExist) && errors.Is(spare.Err, fs.ErrNotExist) {
		return fmt.Errorf("no journal at %s: name the daemon's directory with --state-dir", file.Path)
	}
	return nil
}

func (p *program) checkJournal(path string) error {
	file, spare := journal.Inspect(path)
	if err := journalThere(file, spare); err != nil {
		return err
	}
	if errors.Is(file.Err, journal.ErrLocked) {
		return fmt.Errorf("the journal %s was not checked: stop the daemon first: %w", path, file.Err)
	}
	if err := writeAll(p.stdout, inspected(file)+inspected(spare)); err != nil {
		return err
	}
	if errors.Is(file.Err, journal.ErrByteOrder) {
		return fmt.Errorf("this machine cannot use the journal %s", path)
	}
	if !file.Sound() {
		return fmt.Errorf("the journal %s is not sound: a start sets damaged values apart, or uses the spare copy; "+
			"csi-volmgr journal repair restores what the spare copy has", path)
	}
	return nil
}

// inspected returns the lines about a file of the journal.
func inspected(i journal.Inspection) string {
	if i.Err != nil {
		return fmt.Sprintf("%s: %v\n", i.Path, i.Err)
	}
	var counts []string
	for _, bucket := range slices.Sorted(maps.Keys(i.Counts)) {
		counts = append(counts, fmt.Sprintf("%s %d", bucket, i.Counts[bucket]))
	}
	out := fmt.Sprintf("%s: %s\n", i.Path, strings.Join(counts, ", "))
	if i.LastLost {
		out += "  one of the two heads of the file is damaged: its last write may be lost\n"
	}
	if i.Recovery.Lost() {
		out += "  records may be lost: " + i.Recovery.Why + "\n"
	}
	for _, name := range slices.Sorted(maps.Keys(i.Unreadable)) {
		out += fmt.Sprintf("  %s: %s\n", name, i.Unreadable[name])
	}
	return out
}

func (p *program) repairJournal(cmd *cobra.Command, path string) (err error) {
	if err := journalThere(journal.Inspect(path)); err != nil {
		return err // opening it would make one
	}
	b, err := journal.OpenBolt(path)
	if err != nil {
		return err
	}
	defer func() {
		if e := b.Close(); err == nil {
			err = e
		}
	}()
	if r := b.Recovery(); r.Lost() {
		if err := writeAll(p.stdout, "records may be lost: "+r.Why+"\n"); err != nil {
			return err
		}
	}
	mended, left, err := b.Mend(cmd.Context())
	if err != nil {
		return err
	}
	var out strings.Builder
	for _, name := range mended {
		fmt.Fprintf(&out, "mended from the spare copy: %s\n", name)
	}
	for _, name := range left {
		fmt.Fprintf(&out, "still set apart: %s\n", name)
	}
	if len(mended)+len(left) == 0 && !b.Recovery().Lost() {
		out.WriteString("nothing to repair: every value can be read\n")
	}
	if err := writeAll(p.stdout, out.String()); err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("%d values are not in the spare copy: move %s away and copy a backup of it to %[2]s.spare, which "+
			"the start takes for an older copy; or continue without them (their volumes and claims count as in use)",
			len(left), path)
	}
	return nil
}

func (p *program) exportJournal(path string) error {
	all, err := journal.Export(path)
	if err != nil {
		return err
	}
	var out strings.Builder
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	for _, e := range all {
		if err := enc.Encode(e); err != nil {
			return fmt.Errorf("write %s/%s: %w", e.Bucket, e.Key, err)
		}
	}
	return writeAll(p.stdout, out.String())
}
