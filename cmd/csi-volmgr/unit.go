package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// unitOptions has the flags of volume unit.
type unitOptions struct {
	namespace string
	program   string
	timeout   time.Duration
}

func (p *program) volumeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "volume",
		Short:   "Named volumes; whose a volume is, and whether it goes with its claim; systemd units for volumes",
		Example: `  csi-volmgr volume unit pod web > /etc/systemd/system/csi-volmgr-default-web.service`,
		Args:    knownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(p.unitCommand(), p.namedListCommand(), p.namedRemoveCommand(), p.namedRestoreCommand(),
		p.volumeReleaseCommand(), p.volumeSetCommand())
	return cmd
}

func (p *program) unitCommand() *cobra.Command {
	var o unitOptions
	cmd := &cobra.Command{
		Use:   "unit (pod|pvc) NAME",
		Short: "Write a systemd unit that succeeds only while volumes are mounted",
		Long: `Write a systemd service that waits until a pod's volumes are verified (see wait),
and fails if they are not in time: a service that requires it, and starts after
it, does not start on an empty directory. It asks anew at each start.

For a claim it waits for the pods on this node that have or want it now, and asks
the daemon for them. For a pod it asks no daemon.`,
		Example: `  csi-volmgr volume unit pod web > /etc/systemd/system/csi-volmgr-default-web.service
  systemctl daemon-reload`,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := oneTarget(args, "pods", "pvc")
			if err != nil {
				return err
			}
			switch {
			case o.timeout <= 0:
				return usagef("--timeout=%s: expected more than 0", o.timeout)
			case o.timeout > server.MaxWait:
				return usagef("--timeout=%s: expected at most 24h", o.timeout)
			case o.program != "" && !filepath.IsAbs(o.program):
				return usagef("--program=%s: expected an absolute path", o.program)
			}
			pods := []string{t.name}
			if t.kind == "pvc" {
				if pods, err = p.podsOf(cmd.Context(), o.namespace, t.name); err != nil {
					return err
				}
			}
			if o.program == "" {
				if o.program, err = os.Executable(); err != nil {
					return err
				}
			}
			for _, word := range append([]string{o.namespace, o.program, p.socket, t.name}, pods...) {
				if word == "" || strings.ContainsFunc(word, func(c rune) bool {
					return c <= ' ' || strings.ContainsRune("%$\"'\\;", c)
				}) {
					return usagef("%q cannot be written into a unit", word)
				}
			}
			return writeAll(p.stdout, p.unit(t, pods, o))
		},
	}
	namespaceFlag(cmd, &o.namespace)
	p.completes(cmd, "pod", "pvc")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 2*time.Minute, "how long a start may wait")
	cmd.Flags().StringVar(&o.program, "program", "", "absolute `path` of csi-volmgr in the unit (default: this one's)")
	return cmd
}

// podsOf returns the names of the pods that have or want a claim, sorted.
func (p *program) podsOf(ctx context.Context, namespace, claim string) ([]string, error) {
	c := p.client()
	defer c.Close()
	all, err := c.Pods(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, pod := range all {
		for _, v := range pod.Volumes {
			if pod.Pod.Namespace == namespace && v.Claim == namespace+"/"+claim {
				names = append(names, pod.Pod.Name)
			}
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no pod on this node has or wants claim %s/%s", namespace, claim)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// unit returns the unit's text. A oneshot unit has ended long before the machine stops, and systemd
// orders only units that are to stop. So this unit orders no service before the drain, and a service that
// requires it has to name csi-volmgr-drain.service as well.
func (p *program) unit(t target, pods []string, o unitOptions) string {
	what := "pod"
	if t.kind == "pvc" {
		what = "claim"
	}
	name := fmt.Sprintf("csi-volmgr-%s-%s.service", o.namespace, t.name)
	var b strings.Builder
	fmt.Fprintf(&b, `# Written by csi-volmgr volume unit. In the service that uses the volumes:
#   [Unit]
#   Requires=%[1]s
#   After=%[1]s csi-volmgr-drain.service
[Unit]
Description=Volumes of %[2]s %[3]s/%[4]s are mounted
Wants=csi-volmgr.service
After=csi-volmgr.service csi-volmgr-drain.service

[Service]
Type=oneshot
`, name, what, o.namespace, t.name)
	for _, pod := range pods {
		fmt.Fprintf(&b, "ExecStart=%s --socket=%s wait pod %s --namespace=%s --for=verified --timeout=%s\n", o.program,
			p.socket, pod, o.namespace, o.timeout)
	}
	fmt.Fprintf(&b, "TimeoutStartSec=%d\n", int64((time.Duration(len(pods))*o.timeout + 30*time.Second).Seconds()))
	return b.String()
}
