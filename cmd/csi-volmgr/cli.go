package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/manifest"
	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitDone    = 0
	exitFailed  = 1
	exitUsage   = 2
	exitTimeout = 124 // as timeout(1)
)

const (
	defaultSocket = "/run/csi-volmgr/csi-volmgr.sock"
	defaultNS     = "default"
)

// usageError is an error in the use of the program: exit code 2.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// flagError is an error in the value of a flag of run, which may be a field of the configuration file.
type flagError struct{ flag, text string }

func (e flagError) Error() string { return e.text }

// flagf returns the error of a flag's value.
func flagf(flag string, value any, format string, args ...any) error {
	return usageError{flagError{flag, fmt.Sprintf("--%s=%v: ", flag, value) + fmt.Sprintf(format, args...)}}
}

// codeError ends the program with a code, without a further message.
type codeError int

func (e codeError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func (p *program) run(ctx context.Context, args []string) int {
	root := p.root()
	p.args = args
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	if code, ok := errors.AsType[codeError](err); ok {
		return int(code)
	}
	_, _ = fmt.Fprintln(p.stderr, "csi-volmgr: "+p.explainError(err))
	if _, ok := errors.AsType[usageError](err); ok {
		_, _ = fmt.Fprintf(p.stderr, "Run '%s --help' for its use.\n", cmd.CommandPath())
		return exitUsage
	}
	return exitFailed
}

// explainError returns an error's text, and adds what to do to errors that do not say it themselves.
func (p *program) explainError(err error) string {
	switch {
	case errors.Is(err, client.ErrNoDaemon) && errors.Is(err, fs.ErrPermission):
		return err.Error() + "; only root and the daemon's user may ask it: " + asRoot(p.args)
	case errors.Is(err, client.ErrNoDaemon):
		start := []string{"run"}
		if p.socket != defaultSocket {
			start = append(start, "--socket="+p.socket)
		}
		return err.Error() + "; start it with: " + asRoot(start) + " (or name its socket with --socket)"
	case errors.Is(err, context.Canceled):
		return "interrupted"
	default:
		return server.Message(err)
	}
}

// asRoot returns the command line that runs csi-volmgr with these arguments as root.
func asRoot(args []string) string { return "sudo " + commandLine(args) }

// commandLine returns the command line that runs csi-volmgr with these arguments.
func commandLine(args []string) string {
	line := "csi-volmgr"
	for _, arg := range args {
		if strings.ContainsAny(arg, " \t\n'\"$`\\|&;<>(){}*?[]~#") || arg == "" {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		line += " " + arg
	}
	return line
}

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "csi-volmgr",
		Short: "Make the volumes of pods appear on this node, without a kubelet",
		Long: `csi-volmgr mounts the volumes of pods on a Linux node through CSI drivers,
without a kubelet, and can always say why a volume is not there yet.

Exit codes: 0 done, 1 failed, 2 wrong use, 124 the timeout of a wait expired.`,
		Args:          knownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(p.stdin)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	root.SetFlagErrorFunc(wrongFlag)
	root.PersistentFlags().StringVar(&p.socket, "socket", defaultSocket, "unix `path` of the daemon's API")
	root.AddCommand(
		p.runCommand(), p.applyCommand(), p.deleteCommand(), p.getCommand(), p.describeCommand(),
		p.explainCommand(), p.waitCommand(), p.localDriverCommand(), p.traceCommand(), p.uiCommand(), p.versionCommand(),
		p.volumeCommand(), p.snapshotCommand(), p.cloneCommand(),
		p.driverCommand(), p.watchCommand(),
	)
	root.AddCommand(p.operatorCommands()...)
	root.SetHelpCommand(helpCommand(root))
	p.completeFlags(root)
	return root
}

// knownCommand refuses the arguments of a command that only has subcommands: no subcommand is called so.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q", args[0])
	word := args[0]
	if cmd.HasParent() {
		text += fmt.Sprintf(" for %q", cmd.CommandPath())
		word = cmd.Name() + " " + word
	} else if len(args) > 1 && instead(word+" "+args[1]) != "" {
		word += " " + args[1]
	}
	if use := instead(word); use != "" {
		return usagef("%s: %s", text, use)
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	if near := manifest.Nearest(args[0], names); len(near) > 0 {
		text += "; is it " + strings.Join(near, " or ") + "?"
	}
	return usagef("%s", text)
}

// helpCommand replaces cobra's help command, which does not fail for an unknown verb.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:     "help [VERB]",
		Short:   "Show how a verb is used",
		Long:    "Show how a verb is used: what VERB --help shows.",
		Example: `  csi-volmgr help get`,
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil {
				return usageError{err}
			}
			if err := knownCommand(cmd, rest); err != nil {
				return err
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}

func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("unexpected argument %q", args[0])
	}
	return nil
}

func (p *program) client() *client.Client { return client.New(p.socket) }

func namespaceFlag(cmd *cobra.Command, ns *string) {
	*ns = defaultNS
	cmd.Flags().VarP(nameFlag{ns}, "namespace", "n", "namespace of the objects that have one")
}

// nameFlag is a flag whose value is a name: an empty one, as of a variable that is not set, is an error.
type nameFlag struct{ value *string }

func (n nameFlag) String() string {
	if n.value == nil { // cobra asks a zero value
		return ""
	}
	return *n.value
}

func (n nameFlag) Set(s string) error {
	if s == "" {
		return errors.New("expected a name")
	}
	*n.value = s
	return nil
}

func (n nameFlag) Type() string { return "string" }

// kinds has the words for each kind, by the plural that get uses.
var kinds = map[string][]string{
	"pods":    {"pod", "po"},
	"volumes": {"volume", "vol"},
	"drivers": {"driver"},
	"pv":      {"pvs", "persistentvolume", "persistentvolumes"},
	"pvc":     {"pvcs", "claim", "claims", "persistentvolumeclaim", "persistentvolumeclaims"},
	"mounts":  {"mount"},

	"snapshots":              {"snapshot", "vs", "volumesnapshot", "volumesnapshots"},
	"groupsnapshots":         {"groupsnapshot", "vgs", "volumegroupsnapshot", "volumegroupsnapshots"},
	"schedules":              {"schedule"},
	"volumesnapshotclasses":  {"volumesnapshotclass", "vsclass"},
	"volumesnapshotcontents": {"volumesnapshotcontent", "vsc"},

	"volumegroupsnapshotclasses":  {"volumegroupsnapshotclass", "vgsclass"},
	"volumegroupsnapshotcontents": {"volumegroupsnapshotcontent", "vgsc"},

	"storageclasses":    {"storageclass", "sc"},
	"csidrivers":        {"csidriver"},
	"configmaps":        {"configmap", "cm"},
	"secrets":           {"secret"},
	"volumeattachments": {"volumeattachment"},

	"problems": {"problem"},
	"stats":    {"stat"},
}

// kindOf returns the plural for word; "" if it is not a kind.
func kindOf(word string) string {
	word = strings.ToLower(word)
	for plural, others := range kinds {
		if word == plural || slices.Contains(others, word) {
			return plural
		}
	}
	return ""
}

// target is an object that the user named.
type target struct{ kind, name string }

// targets reads "KIND NAME...", "KIND/NAME..." and "KIND" (with an empty name).
// A volume's name may hold slashes itself.
func targets(args []string, allowed ...string) ([]target, error) {
	if len(args) == 0 {
		return nil, usagef("expected %s", oneKind(allowed))
	}
	check := func(word string) (string, error) {
		kind := kindOf(word)
		if slices.Contains(allowed, kind) {
			return kind, nil
		}
		if use := instead(word); use != "" {
			return "", usagef("unknown kind %q: %s", word, use)
		}
		return "", usagef("unknown kind %q: expected %s", word, oneKind(allowed))
	}
	if !strings.Contains(args[0], "/") {
		kind, err := check(args[0])
		if err != nil {
			return nil, err
		}
		if len(args) == 1 {
			return []target{{kind: kind}}, nil
		}
		out := make([]target, 0, len(args)-1)
		for _, name := range args[1:] {
			if before, after, ok := strings.Cut(name, "/"); ok && kindOf(before) == kind {
				name = after
			}
			t, err := named(kind, name)
			if err != nil {
				return nil, err
			}
			out = append(out, t)
		}
		return out, nil
	}
	var out []target
	for _, arg := range args {
		word, name, ok := strings.Cut(arg, "/")
		if !ok || name == "" {
			return nil, usagef("%q: expected KIND/NAME", arg)
		}
		kind, err := check(word)
		if err != nil {
			return nil, err
		}
		t, err := named(kind, name)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// oneKind says which kinds are allowed.
func oneKind(allowed []string) string {
	if len(allowed) == 1 {
		return allowed[0]
	}
	return "one of " + strings.Join(allowed, ", ")
}

// named returns the target of a kind and a name. A name from a variable that is not set, or one that has
// its namespace before it, would name something else.
func named(kind, name string) (target, error) {
	ns, _, slash := strings.Cut(name, "/")
	switch {
	case name == "":
		return target{}, usagef("%s: expected a name, found an empty one", kind)
	case slash && slices.Contains(namespaced, kind):
		return target{}, usagef("%s %s: expected a name without a slash; give the namespace with -n %s", kind, name, ns)
	}
	return target{kind, name}, nil
}

// inNamespace is oneTarget for verbs that take "NAMESPACE/NAME", as outputs print objects, too. It sets ns then.
func inNamespace(cmd *cobra.Command, ns *string, args []string, allowed ...string) (target, error) {
	if len(args) == 2 && slices.Contains(namespaced, kindOf(args[0])) {
		if before, name, ok := strings.Cut(args[1], "/"); ok && kindOf(before) == "" {
			if cmd.Flags().Changed("namespace") && *ns != before {
				return target{}, usagef("%s: found namespace %s, and -n %s: leave out one", args[1], before, *ns)
			}
			*ns, args = before, []string{args[0], name}
		}
	}
	return oneTarget(args, allowed...)
}

// namespaced lists the kinds whose objects have a namespace.
var namespaced = []string{"pods", "pvc", "snapshots", "groupsnapshots", "schedules"}

// oneTarget is targets for verbs that take exactly one object with a name.
func oneTarget(args []string, allowed ...string) (target, error) {
	ts, err := targets(args, allowed...)
	switch {
	case err != nil && len(args) == 1 && kindOf(args[0]) == "" && !strings.Contains(args[0], "/") &&
		instead(args[0]) == "":
		return target{}, usagef("%w; a pod is named so: pod %s", err, args[0])
	case err != nil && len(args) > 0:
		return target{}, err
	}
	if len(ts) != 1 || ts[0].name == "" {
		return target{}, usagef("expected one KIND NAME or KIND/NAME, where KIND is %s", oneKind(allowed))
	}
	return ts[0], nil
}

// writeAll writes text. A full disk or a closed pipe is an error of the verb.
func writeAll(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return err
}
