package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/tools/uninstall"
	"github.com/spf13/cobra"
)

// defaultState is the default of --state-dir.
const defaultState = "/var/lib/csi-volmgr"

func (p *program) uninstallCommand() *cobra.Command {
	var dry, yes bool
	var cfg uninstall.Config
	cmd := &cobra.Command{
		Use:   "uninstall [--dry-run|--yes]",
		Short: "Remove csi-volmgr from this node, if nothing is mounted any more",
		Long: `List csi-volmgr's state, socket and directories on this node, and remove them with
--yes. Stop the daemon first, and give the paths that it used.

The verb refuses while a volume has a record, anything is mounted below the root
directory, a file is left below the volumes' directories, or volumes or snapshots that
csi-volmgr made exist. It removes directories only if they are empty. The audit log stays.`,
		Example: `  systemctl disable --now csi-volmgr
  csi-volmgr uninstall
  csi-volmgr uninstall --yes`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.needRoot(cmd); err != nil {
				return err
			}
			cfg.Socket, cfg.ClaimsBucket = p.socket, controller.Bucket
			cfg.SnapshotBuckets = []string{controller.SnapshotBucket, controller.GroupBucket}
			for _, path := range []*string{&cfg.Root, &cfg.StateDir, &cfg.Socket} {
				if !filepath.IsAbs(*path) {
					return usagef("%q: expected an absolute path", *path)
				}
				*path = filepath.Clean(*path)
			}
			return p.uninstall(cmd.Context(), cfg, yes)
		},
	}
	dryOrYes(cmd, &dry, &yes)
	cmd.PreRunE = func(*cobra.Command, []string) error { // without a flag it lists
		if dry && yes {
			return usagef("expected either --dry-run or --yes")
		}
		return nil
	}
	cmd.Flags().StringVar(&cfg.Root, "root-dir", defaultRoot, "`directory` below which volumes were mounted")
	cmd.Flags().StringVar(&cfg.StateDir, "state-dir", defaultState, "`directory` of the journal")
	return cmd
}

func (p *program) uninstall(ctx context.Context, cfg uninstall.Config, yes bool) error {
	u, err := uninstall.New(cfg)
	if err != nil {
		return err
	}
	defer u.Close()
	var plan uninstall.Plan
	if yes {
		plan, err = u.Do(ctx, audit.Peer(uint32(p.euid()), int32(os.Getpid())))
	} else {
		plan, err = u.Plan(ctx)
	}
	if err == nil {
		err = plan.Err()
	}
	if err != nil {
		return err
	}
	word := "would remove"
	if yes {
		word = "removed"
	}
	var b strings.Builder
	for _, path := range plan.Files {
		fmt.Fprintf(&b, "%s %s\n", word, path)
	}
	for _, path := range plan.Dirs {
		if _, err := os.Lstat(path); (err == nil) != yes {
			fmt.Fprintf(&b, "%s %s/ (if empty)\n", word, path)
		}
	}
	for _, path := range plan.Kept {
		fmt.Fprintf(&b, "kept %s\n", path)
	}
	return writeAll(p.stdout, b.String())
}
