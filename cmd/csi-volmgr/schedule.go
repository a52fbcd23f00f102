package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

func scheduleColumns() []column[server.ScheduleStatus] {
	return []column[server.ScheduleStatus]{
		{head: "NAMESPACE", value: func(s server.ScheduleStatus, _ view) string { return s.Namespace }},
		{head: "NAME", value: func(s server.ScheduleStatus, _ view) string { return s.Name }},
		{head: "CLAIM", value: func(s server.ScheduleStatus, _ view) string { return orNone(s.Claim) }},
		{head: "EVERY", value: func(s server.ScheduleStatus, _ view) string { return orNone(s.Every) }},
		{head: "KEEP", value: func(s server.ScheduleStatus, _ view) string { return number(s.Keep) }},
		{head: "HAS", value: func(s server.ScheduleStatus, _ view) string { return number(len(s.Snapshots)) }},
		{head: "LAST", value: func(s server.ScheduleStatus, _ view) string { return moment(s.Last) }},
		{head: "NEXT", value: func(s server.ScheduleStatus, _ view) string { return moment(s.Next) }},
		{head: "WAITING FOR", value: func(s server.ScheduleStatus, v view) string { return v.reason(s.Waits) }},
		{head: "NOTE", value: func(s server.ScheduleStatus, v view) string { return v.reason(s.Note) }},
		{head: "CLASS", wide: true, value: func(s server.ScheduleStatus, _ view) string { return orNone(s.Class) }},
		{head: "SNAPSHOTS", wide: true, value: func(s server.ScheduleStatus, _ view) string {
			return orNone(strings.Join(s.Snapshots, ","))
		}},
	}
}

func number(n int) string {
	if n == 0 {
		return none
	}
	return strconv.Itoa(n)
}

// moment formats a time of a schedule, in UTC.
func moment(t time.Time) string {
	if t.IsZero() {
		return none
	}
	return t.UTC().Format("2006-01-02T15:04Z")
}

func (p *program) snapshotScheduleCommand() *cobra.Command {
	r := server.ScheduleRequest{}
	cmd := &cobra.Command{
		Use:   "schedule pvc/NAME --every=PERIOD --keep=N",
		Short: "Make snapshots of a claim at set times, and keep the last ones",
		Long: `Make snapshots of a claim at set times, from now on and over restarts. Hourly is on the
hour, daily at midnight and weekly on Monday, all in UTC; the daemon makes the first at
once. For all times that it missed while it did not run, it makes one snapshot.

When more than --keep of the claim's volume are ready, the daemon deletes the oldest that this
schedule made, but never the last ready one; the audit log has each deletion. While the newest is
not ready it makes no other. If the claim gets another volume, the snapshots of the earlier one
leave the schedule and stay.

To change a schedule, give it again, with the same claim. A lower --keep that deletes snapshots
names them, and needs --yes. get schedules lists schedules; delete schedule ends one and leaves
its snapshots.`,
		Example: `  csi-volmgr snapshot schedule pvc/data --every=daily --keep=7
  csi-volmgr snapshot schedule pvc/data --every=6h --keep=4 --name=often -n shop
  csi-volmgr get schedules
  csi-volmgr delete schedule data-daily`,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := oneTarget(args, "pvc")
			if err != nil {
				return err
			}
			if r.Every == "" || r.Keep == 0 {
				return usagef("say how often with --every, and how many stay with --keep")
			}
			if r.Claim = t.name; r.Name == "" {
				r.Name = t.name + "-" + r.Every
			}
			c := p.client()
			defer c.Close()
			done, err := c.SetSchedule(cmd.Context(), r)
			if err != nil {
				return orCluster(cmd.Context(), c, err, claimThere)
			}
			line := "schedule/" + r.Name + " set"
			if done.Note != "" {
				line += ": " + plain(done.Note)
			}
			return writeAll(p.stdout, line+"\n")
		},
	}
	namespaceFlag(cmd, &r.Namespace)
	p.completes(cmd, "pvc")
	cmd.Flags().StringVar(&r.Every, "every", "", "hourly, daily, weekly, or a `period` such as 6h")
	cmd.Flags().IntVar(&r.Keep, "keep", 0, "`number` of ready snapshots that stay")
	cmd.Flags().BoolVar(&r.DeleteBeyond, "yes", false, "delete the snapshots beyond a lower --keep")
	cmd.Flags().StringVar(&r.Name, "name", "", "`name` of the schedule (default the claim's and the period)")
	cmd.Flags().StringVar(&r.Class, "class", "", "`name` of the VolumeSnapshotClass (default the driver's default class)")
	return cmd
}
