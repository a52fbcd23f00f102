package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/localdriver"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/spf13/cobra"
)

func (p *program) driverCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "driver",
		Short: "Register drivers that do not register themselves",
		Example: `  csi-volmgr driver register --detach /run/my-driver/csi.sock
  csi-volmgr get drivers`,
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(p.registerCommand(), p.unregisterCommand())
	return cmd
}

func (p *program) registerCommand() *cobra.Command {
	var dir, root string
	var detach bool
	var at controller.Endpoint
	cmd := &cobra.Command{
		Use:   "register ENDPOINT",
		Short: "Register a CSI driver, in place of node-driver-registrar",
		Long: `Register the CSI driver whose socket is ENDPOINT (a path, or unix://PATH) with
this node's daemon until the verb is interrupted, as node-driver-registrar does.
It waits until the driver answers, and asks it for its name.

With --detach the daemon at --socket registers the driver and keeps it registered, over
restarts too, until driver unregister; the verb returns once it is registered.

If the driver's controller is a process of its own, --controller is its endpoint: a path,
unix://PATH or, with the three files that prove who is at both ends, tcp://HOST:PORT. The
daemon then calls the node part at ENDPOINT and the controller there, and --detach is implied.
A controller that does not answer yet is called as soon as it does.`,
		Example: `  my-driver --endpoint=unix:///run/my-driver/csi.sock --nodeid=node-1 &
  csi-volmgr driver register --detach unix:///run/my-driver/csi.sock
  csi-volmgr driver register /run/my-driver/csi.sock --controller=/run/my-controller/csi.sock
  csi-volmgr get drivers`,
		Args: oneArg("path of a driver's socket"),
		RunE: func(cmd *cobra.Command, args []string) error {
			endpoint := strings.TrimPrefix(args[0], "unix://")
			apart := at != (controller.Endpoint{})
			detach = detach || apart
			switch {
			case apart && at.Address == "":
				return usagef("--controller-ca, --controller-cert and --controller-key: expected --controller with them")
			case strings.Contains(endpoint, "://"):
				return usagef("%s: expected a path or unix://PATH", args[0])
			case detach && (dir != "" || cmd.Flags().Changed("root-dir")):
				return usagef("--detach: the daemon at --socket has its own directory; leave out --registration-dir and --root-dir")
			case detach:
				return p.handOver(cmd.Context(), endpoint, at)
			case dir != "":
			case cmd.Flags().Changed("root-dir"):
				dir = filepath.Join(root, "plugins_registry")
			default:
				dir = p.registrationDir(cmd.Context(), root)
			}
			return p.register(cmd.Context(), endpoint, dir)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&detach, "detach", "d", false, "have the daemon do it, and return")
	f.StringVar(&at.Address, "controller", "", "`ENDPOINT` of the driver's controller, if that is not the driver's own")
	f.StringVar(&at.CA, "controller-ca", "", "`file` of the authority that signed the certificate of a tcp:// controller")
	f.StringVar(&at.Cert, "controller-cert", "", "`file` with this node's certificate for a controller at tcp://")
	f.StringVar(&at.Key, "controller-key", "", "`file` with the key of --controller-cert")
	f.StringVar(&root, "root-dir", defaultRoot, "the daemon's `directory` for volumes, if no daemon answers at --socket")
	f.StringVar(&dir, "registration-dir", "",
		"`directory` of registration sockets (default: that of the daemon at --socket, or ROOT-DIR/plugins_registry)")
	return cmd
}

func (p *program) unregisterCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "unregister DRIVER",
		Short: "End the registration of a driver that was registered by hand",
		Long: `End a registration that was made with driver register --detach. The daemon makes no
more calls to the driver; mounted volumes stay mounted.`,
		Example: `  csi-volmgr driver unregister hostpath.csi.k8s.io`,
		Args:    oneArg("name of a driver"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := p.client()
			defer c.Close()
			if _, err := c.UnregisterDriver(cmd.Context(), args[0]); err != nil {
				return err
			}
			return writeAll(p.stdout, "driver "+args[0]+" is no longer registered\n")
		},
	}
}

// handOver asks the daemon to register the driver at endpoint.
func (p *program) handOver(ctx context.Context, endpoint string, at controller.Endpoint) error {
	at, err := absolute(at)
	if err != nil {
		return err
	}
	endpoint, err = filepath.Abs(endpoint)
	if err != nil {
		return err
	}
	c := p.client()
	defer c.Close()
	done, err := c.RegisterDriver(ctx, server.Registration{Endpoint: endpoint, Controller: at})
	if err != nil {
		return err
	}
	if done.Warning != "" {
		_, _ = fmt.Fprintln(p.stderr, done.Warning)
	}
	return writeAll(p.stdout, "driver "+done.Name+" is registered\n")
}

// absolute returns an endpoint whose paths, which a person may have typed from the working directory, are
// absolute, or what is wrong with it.
func absolute(at controller.Endpoint) (controller.Endpoint, error) {
	if at == (controller.Endpoint{}) {
		return at, nil
	}
	at.Address = strings.TrimPrefix(at.Address, "unix://")
	paths := []*string{&at.CA, &at.Cert, &at.Key}
	if !strings.Contains(at.Address, "://") {
		paths = append(paths, &at.Address)
	}
	for _, path := range paths {
		if *path == "" {
			continue
		}
		var err error
		if *path, err = filepath.Abs(*path); err != nil {
			return at, err
		}
	}
	at, err := at.Parsed()
	if err != nil {
		err = usagef("--controller: %v", err)
	}
	return at, err
}

// registrationDir returns the registration directory of the daemon at the socket, or the one below root
// if no daemon answers.
func (p *program) registrationDir(ctx context.Context, root string) string {
	if v := p.daemon(ctx); v.RegistrationDir != "" {
		return v.RegistrationDir
	}
	return filepath.Join(root, "plugins_registry")
}

// daemonDeadline bounds the wait for the daemon's version.
const daemonDeadline = 5 * time.Second

// daemon returns the version of the daemon at the socket, the zero value if none answers.
func (p *program) daemon(ctx context.Context) server.Version {
	ctx, cancel := context.WithTimeout(ctx, daemonDeadline)
	defer cancel()
	c := p.client()
	defer c.Close()
	v, err := c.Version(ctx)
	if err != nil {
		return server.Version{}
	}
	return v
}

// register announces the driver at endpoint until ctx ends.
func (p *program) register(ctx context.Context, endpoint, dir string) error {
	endpoint, err := filepath.Abs(endpoint)
	if err != nil {
		return err
	}
	slow := time.AfterFunc(cmp.Or(p.patience, patience), func() {
		_, _ = fmt.Fprintf(p.stderr, "waiting for the driver at %s\n", endpoint)
	})
	name, err := localdriver.NameOf(ctx, endpoint)
	slow.Stop()
	if err != nil {
		return err
	}
	unmake, err := makeDirs(dir)
	if err != nil {
		return fmt.Errorf("make the directory of registration sockets: %w", err)
	}
	defer unmake()
	_, _ = fmt.Fprintf(p.stderr, "driver %s answers at %s; waiting for a daemon that looks at %s\n", name, endpoint, dir)
	return localdriver.ServeRegistration(ctx, localdriver.Registration{
		RegisterConfig: localdriver.RegisterConfig{Dir: dir, Endpoint: endpoint}, Name: name,
		OnResult: func(refused error) {
			if refused == nil {
				_, _ = fmt.Fprintf(p.stderr, "driver %s is registered\n", name)
			} else {
				_, _ = fmt.Fprintf(p.stderr, "driver %s was refused: %v\n", name, refused)
			}
		},
	})
}

// makeDirs makes a directory and its parents. unmake removes those that makeDirs made, unless something
// is in them.
func makeDirs(dir string) (unmake func(), err error) {
	var missing []string
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		missing = append(missing, at)
	}
	unmake = func() {
		for _, at := range missing {
			if os.Remove(at) != nil {
				return // something is in it
			}
		}
	}
	return unmake, os.MkdirAll(dir, 0o750)
}
