package main

import (
	"fmt"
	"runtime/debug"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/spf13/cobra"
)

// release is the version of a release build (-ldflags "-X main.release=v1.2.3").
var release string

// thisVersion returns the version that this program was built as.
func thisVersion() server.Version {
	v := server.Version{Version: release}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Go = info.GoVersion
	if v.Version == "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Commit = s.Value
		}
	}
	return v
}

func (p *program) versionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Show the versions of this program and of the daemon",
		Example: `  csi-volmgr version -o json`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			own := thisVersion()
			c := p.client()
			defer c.Close()
			daemon, err := c.Version(cmd.Context())
			if structured(output) {
				both := map[string]server.Version{"program": own}
				if err == nil {
					both["daemon"] = daemon
				}
				return p.document(both, output)
			}
			text := "program: " + versionLine(own)
			if err != nil {
				return writeAll(p.stdout, text+"daemon:  none answers at "+p.socket+"\n")
			}
			return writeAll(p.stdout, text+"daemon:  "+versionLine(daemon))
		},
	}
	outputFlag(cmd, &output)
	return cmd
}

func versionLine(v server.Version) string {
	text := orNone(v.Version)
	if v.Commit != "" {
		text += " (" + v.Commit + ")"
	}
	text += " " + v.Go
	if v.Node != "" {
		text += ", node " + v.Node
	}
	return fmt.Sprintln(text)
}
