package wire

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/drivers"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	a := authority{key: newKey(t)}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour), IsCA: true,
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, a.key.Public(), a.key)
	if err == nil {
		a.cert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// sign returns a certificate for 127.0.0.1 with its key, both in PEM form.
func (a authority) sign(t *testing.T) (cert, key []byte) {
	own := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, own.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		t.Fatal(err)
	}
	return inPEM("CERTIFICATE", der), inPEM("PRIVATE KEY", pkcs)
}

func inPEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// options are those of a server whose certificate a signs, for clients whose certificates clients signs.
func (a authority) options(t *testing.T, clients authority) []grpc.ServerOption {
	pair, err := tls.X509KeyPair(a.sign(t))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(clients.cert)
	return []grpc.ServerOption{grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}))}
}

// files writes what csi-volmgr driver register names of a node: the authority of the controller's certificate, and its own certificate by own.
func (p *twoParts) files(of, own authority) (e controller.Endpoint) {
	p.t.Helper()
	cert, key := own.sign(p.t)
	e.CA, e.Cert, e.Key = p.path("ca.pem"), p.path("cert.pem"), p.path("key.pem")
	for path, data := range map[string][]byte{e.CA: inPEM("CERTIFICATE", of.cert.Raw), e.Cert: cert, e.Key: key} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
	return e
}

// TestAControllerOnAnotherMachine: both ends prove who they are, each wrong certificate is told, and a file that is
// put right counts without a restart.
func TestAControllerOnAnotherMachine(t *testing.T) {
	right, wrong := newAuthority(t), newAuthority(t)
	p := newTwoParts(t, dirs(t))
	defer p.serve("node.sock", csistrict.Part{Node: true})()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer p.serveAt(l, csistrict.Part{Controller: true, Options: right.options(t, right)})()
	at := p.files(wrong, right)
	at.Address = "tcp://" + l.Addr().String()
	done, err := p.register(at)
	if err != nil || !strings.Contains(done.Note, "certificate signed by unknown authority") {
		t.Errorf("the controller's certificate is of another authority: %+v, %v", done, err)
	}
	p.files(right, wrong)
	p.untilController(func(c drivers.Controller) bool { // the server's answer to the node's certificate
		return !c.Up && strings.Contains(c.Problem, "remote error: tls")
	})
	p.files(right, right)
	up := p.untilController(func(c drivers.Controller) bool { return c.Up })
	if !slices.Contains(up.Capabilities, "CREATE_DELETE_VOLUME") || up.Endpoint != at.Address {
		t.Errorf("the controller: %+v", up)
	}
	apply(t, p.Node, partedClaim+"---"+partedPod)
	p.untilMounted("web", true)
	p.judged()
}

// Without a certificate, an endpoint on another machine is not called: it gets secrets.
func TestAControllerOnAnotherMachineNeedsCertificates(t *testing.T) {
	for _, e := range []controller.Endpoint{
		{Address: "tcp://storage:9000"},
		{Address: "tcp://storage:9000", CA: "/ca", Cert: "/cert"},
		{Address: "tcp://storage"},
		{Address: "tcp://storage:9000", CA: "ca", Cert: "/cert", Key: "/key"},
		{Address: "storage:9000"},
		{Address: "csi.sock"},
		{Address: "/csi.sock", CA: "/ca"},
		{CA: "/ca"},
	} {
		if _, err := e.Parsed(); err == nil {
			t.Errorf("%+v is taken", e)
		}
	}
	if e, err := (controller.Endpoint{Address: "unix:///run//csi.sock"}).Parsed(); err != nil || e.Address != filepath.Clean("/run/csi.sock") {
		t.Errorf("%+v, %v", e, err)
	}
}
