package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/tools/bundle"
	"github.com/csi-volmgr/csi-volmgr/internal/tools/doctor"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// defaultConfig is where the package puts the configuration file.
const defaultConfig = "/etc/csi-volmgr/config.yaml"

// export is a bundle being made. It notes what is missing and goes on, because a bundle is wanted when
// the daemon does not answer.
type export struct {
	p *program
	o runOptions
	// flags are the daemon's flags, as far as they are known.
	flags   *pflag.FlagSet
	files   []bundle.File
	missing []string
}

// export writes a bundle about this node to a new file.
func (p *program) export(ctx context.Context, path string, o runOptions) error {
	x, err := newExport(p, o)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write the bundle: %w", err)
	}
	x.collect(ctx)
	top := "csi-volmgr-" + p.now().UTC().Format("20060102-150405")
	if err := errors.Join(bundle.Write(f, top, p.now(), x.files), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	for _, m := range x.missing {
		_, _ = fmt.Fprintln(p.stderr, "csi-volmgr: not in the bundle: "+m)
	}
	return writeAll(p.stdout, fmt.Sprintf("%s: %d files, without secrets; see its README first\n", path, len(x.files)))
}

// newExport reads the daemon's configuration, to find its directories.
func newExport(p *program, o runOptions) (*export, error) {
	x := &export{p: p}
	daemon := &cobra.Command{Use: "run"}
	daemonFlags(daemon, &x.o)
	logFlags(daemon, &x.o.log)
	daemon.Flags().StringVar(&p.socket, "socket", p.socket, "")
	daemon.Flag("socket").Changed = p.socket != defaultSocket // then the command line set it
	x.flags = daemon.Flags()
	for flag, value := range map[string]string{"root-dir": o.node.Root, "state-dir": o.node.StateDir} {
		if value == "" {
			continue
		}
		if err := x.flags.Set(flag, value); err != nil {
			return nil, usagef("--%s=%s: %v", flag, value, err)
		}
	}
	path := o.config
	if path == "" {
		path = defaultConfig
	}
	file, err := readConfig(daemon, path)
	if err != nil && (o.config != "" || !errors.Is(err, fs.ErrNotExist)) {
		x.missing = append(x.missing, err.Error())
	}
	x.o.socket = p.socket
	if err := x.o.complete(); err != nil {
		return nil, file.locate(err)
	}
	return x, nil
}

func (x *export) add(name string, data []byte, err error) {
	if err != nil {
		x.missing = append(x.missing, name+": "+server.Message(err))
		return
	}
	x.files = append(x.files, bundle.File{Name: name, Data: data})
}

func addJSON[T any](x *export, name string, v T, err error) {
	var data []byte
	if err == nil {
		data, err = bundle.JSON(v)
	}
	x.add(name, data, err)
}

func (x *export) collect(ctx context.Context) {
	c := x.p.client()
	defer c.Close()
	daemon, err := c.Version(ctx)
	if err == nil {
		x.daemon(ctx, c)
	} else {
		x.missing = append(x.missing, "everything from the daemon: "+x.p.explainError(err))
	}
	addJSON(x, "version.json", map[string]server.Version{"program": thisVersion(), "daemon": daemon}, nil)
	x.add("config.txt", x.config(), nil)
	addJSON(x, "doctor.json", doctor.Examine(x.p.doctorConfig(ctx, x.o, nil)), nil)
	mounts, err := x.mounts()
	x.add("mounts.txt", mounts, err)
	journal, err := x.journal()
	x.add("journal.txt", journal, err)
	x.add("README", []byte(x.readme()), nil)
}

// daemon adds what the daemon reports.
func (x *export) daemon(ctx context.Context, c *client.Client) {
	pods, err := c.Pods(ctx)
	addJSON(x, "pods.json", pods, err)
	volumes, err := c.Volumes(ctx)
	addJSON(x, "volumes.json", volumes, err)
	drivers, err := c.Drivers(ctx)
	addJSON(x, "drivers.json", drivers, err)
	claims, err := c.Claims(ctx)
	addJSON(x, "claims.json", claims, err)
	pvs, err := c.PersistentVolumes(ctx)
	addJSON(x, "persistentvolumes.json", pvs, err)
	problems, err := c.Problems(ctx)
	addJSON(x, "problems.json", problems, err)
	sockets, err := c.Sockets(ctx)
	addJSON(x, "sockets.json", sockets, err)
	stats, err := c.Stats(ctx)
	addJSON(x, "stats.json", stats, err)
	calls, err := c.Traces(ctx)
	addJSON(x, "calls.json", calls, err)
	metrics, err := c.Metrics(ctx)
	x.add("metrics.txt", metrics, err)

	var explained bytes.Buffer
	for _, p := range pods {
		if p.Listed && p.Ready {
			continue
		}
		e, err := c.Explain(ctx, "pod", p.Pod.Namespace+"/"+p.Pod.Name)
		if err != nil {
			x.missing = append(x.missing, fmt.Sprintf("explain pod %s/%s: %v", p.Pod.Namespace, p.Pod.Name, err))
			continue
		}
		fmt.Fprintln(&explained, e)
	}
	x.add("explain.txt", explained.Bytes(), nil)
}

// config returns the daemon's settings by its configuration file and the given flags.
func (x *export) config() []byte {
	var b bytes.Buffer
	x.flags.VisitAll(func(f *pflag.Flag) {
		how := "default"
		if f.Changed {
			how = "set"
		}
		fmt.Fprintf(&b, "%-28s %-8s %s\n", f.Name, how, f.Value)
	})
	return b.Bytes()
}

func (x *export) mounts() ([]byte, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return bundle.Mounts(f, x.o.node.Root, x.o.node.StateDir)
}

// journal lists the files of the state directory. volumes.json has the content of the records.
func (x *export) journal() ([]byte, error) {
	entries, err := os.ReadDir(x.o.node.StateDir)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for _, e := range entries {
		if i, err := e.Info(); err == nil { // else it was removed meanwhile
			fmt.Fprintf(&b, "%s %12d %s %s\n", i.Mode(), i.Size(), i.ModTime().UTC().Format("2006-01-02T15:04:05Z"), e.Name())
		}
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	fmt.Fprintf(&b, "boot id %s\n", strings.TrimSpace(string(boot)))
	return b.Bytes(), err
}

func (x *export) readme() string {
	var b strings.Builder
	fmt.Fprintf(&b, "What csi-volmgr knows of a node at %s.\n\n", x.p.now().UTC().Format("2006-01-02 15:04:05 MST"))
	b.WriteString(`Secrets are not in it: the daemon keeps none in what it shows. The values of
volume attributes, publish contexts, mount options and the like, which are
drivers' and users' own words, are left out too, and whatever looks like a
password, a token or a private key. Names of pods, claims, drivers and hosts, and
the texts of errors, are in it.

explain.txt   why each pod that is not ready is not: begin here
volumes.json  the records of the journal, as the daemon has them, with what is under way
calls.json    the last calls of each volume
journal.txt   the files of the state directory
mounts.txt    what is mounted below the daemon's directories

The daemon's log is not in it: journalctl -u csi-volmgr has it.
`)
	for i, m := range x.missing {
		if i == 0 {
			b.WriteString("\nMissing:\n")
		}
		fmt.Fprintf(&b, "- %s\n", m)
	}
	return b.String()
}

// exportFlags adds the flags that go with --export.
func exportFlags(cmd *cobra.Command, path *string, o *runOptions) {
	f := cmd.Flags()
	f.StringVar(path, "export", "", "write a bundle about this node, without secrets, to a new `file` (tar.gz)")
	f.StringVar(&o.config, "config", "", "the daemon's configuration `file`, for --export (default "+defaultConfig+")")
	f.StringVar(&o.node.Root, "root-dir", "",
		"the daemon's `directory` for volumes, for --export, if the configuration does not set it")
	f.StringVar(&o.node.StateDir, "state-dir", "", "the daemon's `directory` of the journal, for --export, likewise")
	_ = cmd.MarkFlagFilename("export", "gz") // fails only for a flag that does not exist
	_ = cmd.MarkFlagFilename("config")
}
