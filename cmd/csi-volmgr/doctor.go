package main

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/binding"
	"github.com/csi-volmgr/csi-volmgr/internal/tools/doctor"
	"github.com/csi-volmgr/csi-volmgr/internal/tools/handover/disk"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/spf13/cobra"
)

// programPath lists where helpers and the built-in kinds look for programs.
const programPath = "/usr/sbin:/usr/bin:/sbin:/bin"

// errUnsound is doctor's error if a check failed; the table has said which.
var errUnsound = errors.New("at least one check failed")

func (p *program) doctorCommand() *cobra.Command {
	var o runOptions
	var drivers []string
	var quiet bool
	var output string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what this host has for csi-volmgr and for drivers",
		Long: `Check what this host has for csi-volmgr and for drivers: features of the kernel,
the daemon's directories, propagation of mounts, sockets, the clock, limits, and
programs that kinds of volumes need. It changes nothing and needs no daemon; if
a daemon answers at --socket, doctor checks that one's directories, and names
the PersistentVolumes for which several claims contend.

A warning says what works less well, or which kind of volume or driver does not
work; the exit code is 1 if a check failed. Doctor checks the needs of each driver
that has a directory below the root directory, and of those that --driver names.`,
		Example: `  csi-volmgr doctor
  csi-volmgr doctor --driver driver.longhorn.io --quiet
  csi-volmgr doctor -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.socket = p.socket
			p.asDaemon(cmd, &o)
			if err := o.complete(); err != nil {
				return err
			}
			report := doctor.Examine(p.doctorConfig(cmd.Context(), o, drivers))
			if quiet {
				report.Findings = slices.DeleteFunc(report.Findings, func(f doctor.Finding) bool { return f.Status == doctor.OK })
			}
			return p.showReport(report, output)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.node.Root, "root-dir", defaultRoot, "the daemon's `directory` for volumes")
	f.StringVar(&o.node.StateDir, "state-dir", defaultState, "the daemon's `directory` of the journal")
	f.StringVar(&o.node.RegistrationDir, "registration-dir", "",
		"`directory` of drivers' registration sockets (default ROOT-DIR/plugins_registry)")
	f.StringArrayVar(&drivers, "driver", nil, "`name` of a driver whose needs are also checked; repeatable")
	f.BoolVarP(&quiet, "quiet", "q", false, "leave out checks that are ok")
	outputFlag(cmd, &output)
	return cmd
}

// asDaemon sets the directories that the command line does not give to those of the daemon at the socket.
func (p *program) asDaemon(cmd *cobra.Command, o *runOptions) {
	v := p.daemon(cmd.Context())
	if v.RootDir == "" {
		return
	}
	set := func(flag string, to *string, value string) {
		if !cmd.Flags().Changed(flag) {
			*to = value
		}
	}
	set("state-dir", &o.node.StateDir, v.StateDir)
	if !cmd.Flags().Changed("root-dir") {
		set("registration-dir", &o.node.RegistrationDir, v.RegistrationDir)
	}
	set("root-dir", &o.node.Root, v.RootDir)
}

// doctorConfig returns what to check on this host.
func (p *program) doctorConfig(ctx context.Context, o runOptions, drivers []string) doctor.Config {
	root := filepath.Clean(o.node.Root)
	kernel := mount.New("/")
	c := doctor.Config{
		Root: root, StateDir: filepath.Clean(o.node.StateDir), RegistrationDir: filepath.Clean(o.node.RegistrationDir),
		Socket:   o.socket,
		Features: kernel.Features(), Shared: kernel.IsShared, Kubelet: disk.Host{}.Kubelet,
		Unreached: func(socket string) (string, error) {
			return doctor.Unreached(ctx, socket, root)
		}, Contended: p.contended(ctx), UID: p.euid(), Path: strings.Split(programPath, ":"),
	}
	found, _ := filepath.Glob(filepath.Join(root, "plugins", "*", "csi.sock")) // the pattern is good
	for _, path := range found {
		drivers = append(drivers, filepath.Base(filepath.Dir(path)))
	}
	slices.Sort(drivers)
	for _, name := range slices.Compact(drivers) {
		c.Drivers = append(c.Drivers, state.DriverName(name))
	}
	return c
}

// contended returns, by volume, which claims contend for it; nil if no daemon answers.
func (p *program) contended(ctx context.Context) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, daemonDeadline)
	defer cancel()
	c := p.client()
	defer c.Close()
	problems, err := c.Problems(ctx)
	if err != nil {
		return nil
	}
	all := map[string]string{}
	for _, problem := range problems {
		if problem.Source == binding.Name {
			all[problem.Object] = problem.Message
		}
	}
	return all
}

func (p *program) showReport(r doctor.Report, output string) error {
	var err error
	if structured(output) {
		err = p.document(r, output)
	} else {
		err = writeTable(p.stdout, findingColumns, r.Findings, p.look(output))
	}
	if err == nil && r.Status == doctor.Fail {
		return errUnsound
	}
	return err
}

var findingColumns = []column[doctor.Finding]{
	{head: "STATUS", state: true, value: func(f doctor.Finding, _ view) string { return string(f.Status) }},
	{head: "CHECK", value: func(f doctor.Finding, _ view) string { return plain(f.Check) }},
	{head: "FOUND", value: func(f doctor.Finding, _ view) string { return plain(f.Found) }},
	{head: "WHAT TO DO", value: func(f doctor.Finding, _ view) string { return plain(f.Advice) }},
}
