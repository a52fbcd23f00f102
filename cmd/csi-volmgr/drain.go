package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/spf13/cobra"
)

// drainOptions has the flags of drain.
type drainOptions struct {
	stopped bool
	reason  string
	wait    string // "", unpublished or unstaged
	timeout time.Duration
}

func (p *program) drainCommand() *cobra.Command {
	var o drainOptions
	cmd := &cobra.Command{
		Use:   "drain [--wait=unpublished|unstaged]",
		Short: "Mount nothing new on this node, and wait until its volumes are unmounted",
		Long: `Mount nothing new on this node until undrain, over restarts and reboots. A mounted
volume is unmounted when its pod is removed.

With --consumers-stopped you confirm that no container of any pod runs on this node
any more: the daemon unpublishes and unstages every volume, even if its pod is still
listed. This holds until undrain or the next boot, when a plain drain from before holds
again. It becomes a plain drain if a kubelet's volumes are taken over meanwhile
(adopt), or if the journal is replaced by an older copy, which may not know of an
undrain: containers may run again.

With --wait=unpublished the verb returns when no volume is published; with
--wait=unstaged when none is staged either, and drivers may be stopped. Exit code
124 means that the timeout expired: standard error says which volumes are left, and why.`,
		Example: `  csi-volmgr drain --wait=unstaged --timeout=10m --reason="new disks"
  csi-volmgr drain --consumers-stopped --wait=unstaged`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.timeout < 0 {
				return usagef("--timeout=%s: expected 0 or more", o.timeout)
			}
			return p.drain(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.stopped, "consumers-stopped", false, "no container of any pod runs here: unmount everything")
	f.StringVar(&o.reason, "reason", "", "why, in `words`, for people and the audit log")
	f.Var(oneOf{&o.wait, []string{"unpublished", "unstaged"}}, "wait", "wait until every volume is")
	f.DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long to wait at most")
	return cmd
}

func (p *program) undrainCommand() *cobra.Command {
	var stopped bool
	cmd := &cobra.Command{
		Use:   "undrain",
		Short: "Mount volumes on this node again",
		Long: `Mount volumes on this node again.

With --consumers-stopped it ends only a drain --consumers-stopped: a plain drain, also
one from before, stays. csi-volmgr-drain.service does so when it starts.`,
		Example: `  csi-volmgr undrain`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := p.client()
			defer c.Close()
			if !stopped {
				if err := c.Undrain(cmd.Context()); err != nil {
					return err
				}
				return writeAll(p.stdout, "node mounts volumes again\n")
			}
			left, err := c.EndEmptying(cmd.Context())
			if err != nil {
				return err
			}
			if left.Mode != "" {
				return writeAll(p.stdout, "node mounts nothing new\n")
			}
			return writeAll(p.stdout, "node mounts volumes\n")
		},
	}
	cmd.Flags().BoolVar(&stopped, "consumers-stopped", false, "end only a drain --consumers-stopped")
	return cmd
}

func (p *program) drain(ctx context.Context, o drainOptions) error {
	c := p.client()
	defer c.Close()
	mode := server.DrainHold
	if o.stopped {
		mode = server.DrainEmpty
	}
	if _, err := c.Drain(ctx, mode, o.reason); err != nil {
		return err
	}
	if o.wait == "" {
		return writeAll(p.stdout, "node mounts nothing new\n")
	}
	left, err := p.emptied(ctx, c, o)
	if err != nil {
		return err
	}
	if len(left) == 0 {
		return writeAll(p.stdout, "no volume is "+strings.TrimPrefix(o.wait, "un")+"\n")
	}
	text := fmt.Sprintf("csi-volmgr: %s not %s after %s:\n", count(len(left), "volume"), o.wait, o.timeout)
	for _, v := range left {
		text += leftLine(v)
	}
	if err := writeAll(p.stderr, text); err != nil {
		return err
	}
	return codeError(exitTimeout)
}

var errEmptied = errors.New("emptied")

// emptied waits until no volume is published or staged, as o says, and returns those that still are when
// the time is over, sorted.
func (p *program) emptied(ctx context.Context, c *client.Client, o drainOptions) ([]server.VolumeStatus, error) {
	bounded, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	left := map[state.VolumeID]bool{}
	listed := false
	err := c.WatchVolumes(bounded, func(e server.Event[server.VolumeStatus]) error {
		v := e.Item
		if e.Type == "gone" || e.Type == "set" && !remains(v, o.wait) {
			delete(left, v.Volume.ID)
		} else if e.Type == "set" {
			left[v.Volume.ID] = true
		}
		if listed = listed || e.Type == "listed"; listed && len(left) == 0 {
			return errEmptied
		}
		return nil
	})
	switch {
	case errors.Is(err, errEmptied):
		return nil, nil
	case err != nil:
		return nil, err
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	all, err := c.Volumes(ctx) // as they are when the time is over
	return slices.DeleteFunc(all, func(v server.VolumeStatus) bool { return !remains(v, o.wait) }), err
}

// remains reports whether a volume is still published or staged, whichever wait says.
func remains(v server.VolumeStatus, wait string) bool {
	switch {
	case v.Quarantined != "":
		return true // its state is unknown
	case wait == "unpublished":
		return !v.Volume.Unmounted()
	default:
		return v.Volume.InUse()
	}
}

// leftLine says why a volume is still there.
func leftLine(v server.VolumeStatus) string {
	why := v.Held.Reason
	switch {
	case v.Quarantined != "":
		why = "its record cannot be read: " + v.Quarantined
	case v.Call.Kind != 0:
		why = v.Call.String() + " is in flight"
	}
	if r := failureOf(v.Volume); r.Attempts > 0 {
		why += fmt.Sprintf("; %d failed attempts, last %s: %s", r.Attempts, r.Call, r.Error)
	}
	if why == "" {
		why = "still listed: " + cmp.Or(strings.Join(holdersOf(v.Volume), ", "), "its pod") +
			": csi-volmgr explain volume " + cmp.Or(v.Volume.Spec.Value().Claim, string(v.Volume.ID))
	}
	return fmt.Sprintf("  %s: %s\n", plain(server.ShortID(v.Volume.ID)), plain(why))
}

// holdersOf returns the pods that have a volume, sorted.
func holdersOf(v server.Volume) []string {
	var pods []string
	for _, m := range v.Mounts {
		pods = append(pods, "pod "+m.Pod.Namespace+"/"+m.Pod.Name)
	}
	slices.Sort(pods)
	return pods
}

// failureOf returns the failure of the volume's removal with the most attempts.
func failureOf(v server.Volume) server.RetryStatus {
	r := v.Stage.Retry()
	for _, m := range v.Mounts {
		if m.Retry().Attempts > r.Attempts {
			r = m.Retry()
		}
	}
	return r
}
