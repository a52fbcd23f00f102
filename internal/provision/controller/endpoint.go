package controller

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc/credentials"

	"github.com/csi-volmgr/csi-volmgr/internal/host/unixsocket"
)

// Endpoint is where a driver's controller is.
type Endpoint struct {
	// Address is the absolute path of a socket, or tcp://host:port.
	Address string `json:"endpoint"`
	// CA, Cert and Key are the paths of PEM files: which authority signs the controller's
	// certificate, and this node's certificate and key. A socket has none of them.
	CA   string `json:"ca,omitempty"`
	Cert string `json:"cert,omitempty"`
	Key  string `json:"key,omitempty"`
}

// remoteScheme begins the address of an endpoint on another machine.
const remoteScheme = "tcp://"

// Parsed returns e with its address in the form that Address documents, or what is wrong with it.
func (e Endpoint) Parsed() (Endpoint, error) {
	address, remote := strings.CutPrefix(e.Address, remoteScheme)
	if !remote {
		if e.CA != "" || e.Cert != "" || e.Key != "" {
			return e, fmt.Errorf("controller %s: a CA, certificate or key is for tcp://host:port only", e.Address)
		}
		path, err := unixsocket.EndpointPath(e.Address)
		e.Address = path
		return e, err
	}
	if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
		return e, fmt.Errorf("controller %q: want an absolute path or tcp://host:port", e.Address)
	}
	for _, f := range []struct{ what, path string }{{"CA", e.CA}, {"certificate", e.Cert}, {"key", e.Key}} {
		if !filepath.IsAbs(f.path) {
			return e, fmt.Errorf("controller %s: %s: found %q, want the absolute path of a PEM file: the controller gets "+
				"secrets, so both ends prove who they are", e.Address, f.what, f.path)
		}
	}
	return e, nil
}

// Credentials returns what proves both ends of a connection to another machine; nil for a socket.
func (e Endpoint) Credentials() credentials.TransportCredentials {
	if !strings.HasPrefix(e.Address, remoteScheme) {
		return nil
	}
	return files{credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12}), e}
}

// files are credentials that are read for each connection, so that a file which is renewed counts
// from the next connection on.
type files struct {
	credentials.TransportCredentials
	of Endpoint
}

var errNoCA = errors.New("no certificate in PEM form")

// ClientHandshake implements credentials.TransportCredentials.
func (f files) ClientHandshake(ctx context.Context, authority string, conn net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	pem, err := os.ReadFile(f.of.CA)
	pool := x509.NewCertPool()
	if err == nil && !pool.AppendCertsFromPEM(pem) {
		err = fmt.Errorf("%s: %w", f.of.CA, errNoCA)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the CA: %w", err)
	}
	own, err := tls.LoadX509KeyPair(f.of.Cert, f.of.Key)
	if err != nil {
		return nil, nil, fmt.Errorf("read this node's certificate: %w", err)
	}
	c := &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}
	return credentials.NewTLS(c).ClientHandshake(ctx, authority, conn)
}

// Clone implements credentials.TransportCredentials.
func (f files) Clone() credentials.TransportCredentials {
	return files{f.TransportCredentials.Clone(), f.of}
}
