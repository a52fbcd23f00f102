package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/tools/handover"
	"github.com/csi-volmgr/csi-volmgr/internal/tools/handover/takeover"
	"github.com/csi-volmgr/csi-volmgr/internal/wire"
	"github.com/spf13/cobra"
)

// handoverOptions has the flags of adopt and release.
type handoverOptions struct {
	run      runOptions
	from     string
	reason   string
	dry, yes bool
}

func (p *program) adoptCommand() *cobra.Command {
	var o handoverOptions
	cmd := &cobra.Command{
		Use:   "adopt (--dry-run|--yes) [--from=DIRECTORY]",
		Short: "Take over the volumes that a kubelet left mounted on this node",
		Long: `Take over the volumes that a kubelet left mounted on this node, from its files
and the mount table. It mounts and unmounts nothing, and asks drivers only for
their capabilities. Stop the kubelet and the daemon first, leave the drivers
running, and start the daemon afterwards.

It takes the daemon's flags and configuration file, and reads the pods from the
same sources. A volume of a pod that no source lists would be unmounted when the
daemon starts: adopt refuses it unless --reason says why that is right.

A drain --consumers-stopped becomes a plain drain: containers have run since.

It takes over all volumes, or none. Run again, it finds nothing to do.`,
		Example: `  csi-volmgr adopt --dry-run --kubeconfig=/etc/kubernetes/kubelet.conf
  csi-volmgr adopt --yes --config=/etc/csi-volmgr/config.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("from") {
				if cmd.Flags().Changed("root-dir") && o.from != o.run.node.Root {
					return usagef("--from=%s and --root-dir=%s: expected one directory, since what is mounted cannot move", o.from,
						o.run.node.Root)
				}
				if err := cmd.Flags().Set("root-dir", o.from); err != nil {
					return err
				}
			}
			n, err := p.stoppedNode(cmd, &o.run)
			if err != nil {
				return err
			}
			t, err := n.Adopt(cmd.Context(), p.handover(o))
			err = errors.Join(err, n.Close())
			return errors.Join(writeAll(p.stdout, adoptText(t, o)), err)
		},
	}
	handoverFlags(cmd, &o)
	cmd.Flags().StringVar(&o.from, "from", defaultRoot, "the kubelet's root `directory`, and so the daemon's")
	cmd.Flags().StringVar(&o.reason, "reason", "",
		"why the volumes reported as not wanted may go; it is kept in the audit log")
	return cmd
}

// handoverFlags adds the flags of adopt and release.
func handoverFlags(cmd *cobra.Command, o *handoverOptions) {
	daemonFlags(cmd, &o.run)
	logFlags(cmd, &o.run.log)
	o.run.log.level, cmd.Flag("log-level").DefValue = "warn", "warn" // the verb's own output is the answer
	for _, name := range []string{
		"http-address", "page", "local-driver", "volume-plugin", "volume-plugin-socket", "deadline",
	} {
		cmd.Flag(name).Hidden = true // unused here, but they may be in the file
	}
	dryOrYes(cmd, &o.dry, &o.yes)
}

// stoppedNode returns the node of the daemon's options, without running it.
func (p *program) stoppedNode(cmd *cobra.Command, o *runOptions) (*wire.Node, error) {
	logger, err := p.completed(cmd, o)
	if err != nil {
		return nil, err
	}
	cfg, err := nodeConfig(*o, logger)
	if err != nil {
		return nil, err
	}
	cfg.VolumesPerPod = 0 // what a kubelet mounted stays, and what is mounted goes back
	return wire.New(cfg)
}

func (p *program) handover(o handoverOptions) takeover.Order {
	return takeover.Order{Yes: o.yes, Reason: o.reason, By: audit.Peer(uint32(p.euid()), int32(os.Getpid()))}
}

// adoptText says what was taken over, or would be.
func adoptText(t handover.Takeover, o handoverOptions) string {
	var b strings.Builder
	for _, i := range t.Items {
		fmt.Fprintf(&b, "%s: %s\n", plain(i.Path), i.What)
	}
	for _, r := range t.Refusals {
		if r.Overrulable && o.reason != "" {
			fmt.Fprintf(&b, "%s: overruled by the reason: %s\n", plain(r.Path), r.Why)
		}
	}
	switch {
	case handover.Against(t.Refusals, o.reason) != "":
		return ""
	case o.yes:
		fmt.Fprintf(&b, "%d volumes taken over\n", len(t.Records))
	default:
		fmt.Fprintf(&b, "%d volumes would be taken over\n", len(t.Records))
	}
	return b.String()
}

func (p *program) releaseCommand() *cobra.Command {
	var o handoverOptions
	cmd := &cobra.Command{
		Use:   "release (--dry-run|--yes)",
		Short: "Hand the volumes of this node back to a kubelet, mounted as they are",
		Long: `Hand the volumes of this node back to a kubelet: write the files by which a
kubelet finds them, leave them mounted, and drop their records. Stop the daemon
first, do not start it again on this root directory, and start the kubelet
afterwards.

It hands back all volumes, or none: it refuses if a kubelet could not take one over.`,
		Example: `  csi-volmgr release --dry-run
  csi-volmgr release --yes --config=/etc/csi-volmgr/config.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			n, err := p.stoppedNode(cmd, &o.run)
			if err != nil {
				return err
			}
			back, err := n.Release(cmd.Context(), p.handover(o))
			err = errors.Join(err, n.Close())
			return errors.Join(writeAll(p.stdout, releaseText(back, o)), err)
		},
	}
	handoverFlags(cmd, &o)
	for _, name := range []string{
		"manifests", "kubeconfig", "host-path-allow", "inline-allow", "selinux-mount",
		"registration-dir", "registration-shared", "token-signing-key", "token-issuer", "volumes-per-pod",
	} {
		cmd.Flag(name).Hidden = true
	}
	return cmd
}

// releaseText says what was handed back, or would be.
func releaseText(back handover.Handback, o handoverOptions) string {
	if len(back.Refusals) > 0 {
		return ""
	}
	var b strings.Builder
	for _, i := range back.Items {
		fmt.Fprintf(&b, "%s: %s\n", plain(i.Path), i.What)
	}
	word := "would be handed back"
	if o.yes {
		word = "handed back"
	}
	fmt.Fprintf(&b, "%d volumes %s\n", len(back.Records), word)
	return b.String()
}
