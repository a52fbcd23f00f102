package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"time"

	"github.com/spf13/cobra"
)

func (p *program) uiCommand() *cobra.Command {
	address := "127.0.0.1:0"
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve the status page to a browser on this machine",
		Long: `ui serves the status page of the daemon at --socket on a loopback address, until
it is interrupted, and prints the address. The page changes nothing. ui works even
if the daemon has no HTTP address, or does not serve the page there. Every user of
this machine can read the page while it is served.`,
		Example: `  csi-volmgr ui                              # prints http://127.0.0.1:PORT/ui/
  csi-volmgr ui --address=127.0.0.1:9812     # then, from elsewhere: ssh -L 9812:127.0.0.1:9812 NODE`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.ui(cmd.Context(), address) },
	}
	cmd.Flags().StringVar(&address, "address", address, "loopback `address` to serve at")
	return cmd
}

func (p *program) ui(ctx context.Context, address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !at.Addr().IsLoopback() {
		return usagef("--address=%s: expected IP:PORT with a loopback IP, such as 127.0.0.1:9812", address)
	}
	c := p.client()
	defer c.Close()
	if _, err := c.Version(ctx); err != nil {
		return err // fail now, not in the browser
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen at %s: %w", address, err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "daemon"
			r.Out.Host = r.In.Host
		},
		Transport:     c.Transport(),
		FlushInterval: -1,
	}
	mux := http.NewServeMux()
	mux.Handle("GET /ui/", proxy)
	mux.Handle("GET /{$}", http.RedirectHandler("/ui/", http.StatusFound))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := writeAll(p.stdout, fmt.Sprintf("http://%s/ui/\n", l.Addr())); err != nil {
		return errors.Join(err, l.Close())
	}
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the status page: %w", err)
	}
	return nil
}
