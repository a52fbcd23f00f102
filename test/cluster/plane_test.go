//go:build cluster

package cluster

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// patience is how long anything may take on a busy machine. A test that passes never waits
// that long.
const patience = 4 * time.Minute

// controllers are the controllers that a node's volumes depend on.
var controllers = []string{
	"persistentvolume-binder-controller", "persistentvolume-attach-detach-controller", "persistentvolume-expander-controller",
	"persistentvolume-protection-controller", "persistentvolumeclaim-protection-controller", "ephemeral-volume-controller",
	"serviceaccount-controller", "namespace-controller", "garbage-collector-controller", "statefulset-controller",
}

// plane is a running control plane.
type plane struct {
	dir, binary, url string
	admin            *rest.Config
	client           kubernetes.Interface
	ca               *x509.Certificate
	caKey            *ecdsa.PrivateKey
	apiArgs          []string
	health           bool // the server keeps the health of volumes: Kubernetes 1.37 and later
	procs            map[string]*server
}

// server is a running program.
type server struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when the program has ended
}

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, Panic]
rules:
- level: Metadata
  userGroups: ["system:nodes", "system:serviceaccounts:csi-volmgr"]
- level: None
`

// startPlane starts the programs. Another process can take a port between its choice and
// its use, so startPlane tries again.
func startPlane(ctx context.Context, binary string) (p *plane, err error) {
	for range 3 {
		if p, err = tryPlane(ctx, binary); err == nil {
			return p, nil
		}
	}
	return nil, err
}

func tryPlane(ctx context.Context, binary string) (_ *plane, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	p := &plane{binary: binary, procs: map[string]*server{}}
	if p.dir, err = os.MkdirTemp("", "plane-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, p.logs(15))
			p.stop()
		}
	}()
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	if err := p.makeKeys(); err != nil {
		return nil, err
	}
	if err := os.WriteFile(p.path("audit.yaml"), []byte(auditPolicy), 0o600); err != nil {
		return nil, err
	}
	version, err := exec.Command(binary, "kube-apiserver", "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("learn the release of %s: %w", binary, err)
	}
	gates := "ClusterTrustBundle=true,ClusterTrustBundleProjection=true,PodCertificateRequest=true"
	if p.health = !strings.HasPrefix(string(version), "Kubernetes v1.36."); p.health {
		gates += ",CSIVolumeHealth=true"
	}
	etcd, peer := "http://127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1]
	if err := p.start("etcd", "--name=default", "--data-dir="+p.path("etcd"), "--listen-client-urls="+etcd, "--advertise-client-urls="+etcd,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer, "--unsafe-no-fsync", "--log-level=warn"); err != nil {
		return nil, err
	}
	p.url = "https://127.0.0.1:" + ports[2]
	p.apiArgs = []string{
		"--etcd-servers=" + etcd, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=" + ports[2],
		"--tls-cert-file=" + p.path("server.crt"), "--tls-private-key-file=" + p.path("server.key"), "--client-ca-file=" + p.path("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + p.path("sa.key"),
		"--service-account-signing-key-file=" + p.path("sa.key"), "--service-cluster-ip-range=127.240.0.0/24",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--endpoint-reconciler-type=none", "--audit-policy-file=" + p.path("audit.yaml"), "--audit-log-path=" + p.path("audit.log"),
		"--runtime-config=certificates.k8s.io/v1beta1=true", "--feature-gates=" + gates,
	}
	if p.admin, err = p.identity("admin", "system:masters"); err != nil {
		return nil, err
	}
	if p.client, err = kubernetes.NewForConfig(p.admin); err != nil {
		return nil, err
	}
	if err := p.startAPI(ctx); err != nil {
		return nil, err
	}
	return p, p.startControllers(ctx)
}

// startAPI starts the API server and returns when it answers.
func (p *plane) startAPI(ctx context.Context) error {
	if err := p.start("kube-apiserver", p.apiArgs...); err != nil {
		return err
	}
	return p.until(ctx, "kube-apiserver", func(ctx context.Context) bool {
		b, err := p.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err == nil && string(b) == "ok"
	})
}

func (p *plane) startControllers(ctx context.Context) error {
	for _, name := range []string{"kube-controller-manager", "kube-scheduler"} {
		c, err := p.identity("system:"+name, "system:masters")
		if err != nil {
			return err
		}
		if err := writeKubeconfig(p.path(name+".kubeconfig"), c, p.path("ca.crt")); err != nil {
			return err
		}
	}
	if err := p.start("kube-controller-manager", "--kubeconfig="+p.path("kube-controller-manager.kubeconfig"), "--leader-elect=false", "--secure-port=0",
		"--controllers="+strings.Join(controllers, ","), "--service-account-private-key-file="+p.path("sa.key"), "--root-ca-file="+p.path("ca.crt"),
		"--pvclaimbinder-sync-period=2s", "--attach-detach-reconcile-sync-period=5s", "--kube-api-qps=200", "--kube-api-burst=400"); err != nil {
		return err
	}
	if err := p.start("kube-scheduler", "--kubeconfig="+p.path("kube-scheduler.kubeconfig"), "--leader-elect=false", "--secure-port=0"); err != nil {
		return err
	}
	return p.until(ctx, "kube-controller-manager", func(ctx context.Context) bool {
		_, err := p.client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err == nil
	})
}

// start starts a program of the control plane.
func (p *plane) start(name string, args ...string) error {
	s, err := p.launch(p.path(name+".log"), nil, p.binary, append([]string{name}, args...)...)
	if err == nil {
		p.procs[name] = s
	}
	return err
}

// launch starts a program that ends with this process, however this process ends. The
// kernel sends the signal when the thread that forked ends, so the thread is kept.
func (p *plane) launch(logFile string, env []string, binary string, args ...string) (*server, error) {
	s := &server{cmd: exec.Command(binary, args...), log: logFile, done: make(chan struct{})}
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s.cmd.Stdout, s.cmd.Stderr, s.cmd.Dir, s.cmd.Env = log, log, p.dir, append(os.Environ(), env...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := s.cmd.Start()
		started <- err
		if err == nil {
			_ = s.cmd.Wait()
			close(s.done)
		}
	}()
	return s, <-started
}

// kill kills a program.
func (p *plane) kill(name string) {
	if s := p.procs[name]; s != nil {
		_ = s.cmd.Process.Kill()
		<-s.done
		delete(p.procs, name)
	}
}

func (p *plane) stop() {
	for _, name := range []string{"kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"} {
		p.kill(name)
	}
	_ = os.RemoveAll(p.dir)
}

// until waits until ok returns true, the program ends, or ctx ends.
func (p *plane) until(ctx context.Context, name string, ok func(context.Context) bool) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok(ctx) {
		select {
		case <-p.procs[name].done:
			return fmt.Errorf("%s ended: %v", name, p.procs[name].cmd.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", name, ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

// within waits until ok returns true, for at most patience.
func (p *plane) within(ctx context.Context, what string, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := p.until(ctx, "kube-apiserver", func(context.Context) bool { return ok() }); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func (p *plane) path(name string) string { return filepath.Join(p.dir, name) }

// logs returns the last n lines of each program's log.
func (p *plane) logs(n int) string {
	var b strings.Builder
	for name, s := range p.procs {
		data, _ := os.ReadFile(s.log)
		lines := strings.Split(strings.TrimSpace(string(data)), "\n")
		fmt.Fprintf(&b, "--- %s\n%s\n", name, strings.Join(lines[max(0, len(lines)-n):], "\n"))
	}
	return b.String()
}

func freePorts(n int) (ports []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return ports, nil
}

// identity returns the configuration of a client that is user with the groups.
func (p *plane) identity(user string, groups ...string) (*rest.Config, error) {
	crt, key, err := p.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: user, Organization: groups}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, err
	}
	return &rest.Config{Host: p.url, QPS: 200, Burst: 400, TLSClientConfig: rest.TLSClientConfig{CAFile: p.path("ca.crt"), CertData: crt, KeyData: key}}, nil
}

func writeKubeconfig(file string, c *rest.Config, ca string) error {
	k := clientcmdapi.NewConfig()
	k.Clusters["c"] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthority: ca}
	k.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: c.CertData, ClientKeyData: c.KeyData, Token: c.BearerToken}
	k.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	k.CurrentContext = "x"
	return clientcmd.WriteToFile(*k, file)
}

func (p *plane) makeKeys() (err error) {
	if p.caKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return err
	}
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, root, root, p.caKey.Public(), p.caKey)
	if err != nil {
		return err
	}
	if p.ca, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	crt, key, err := p.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "kube-apiserver"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return err
	}
	_, sa, err := p.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "service accounts"}})
	if err != nil {
		return err
	}
	for name, b := range map[string][]byte{"ca.crt": encode("CERTIFICATE", der), "server.crt": crt, "server.key": key, "sa.key": sa} {
		if err := os.WriteFile(p.path(name), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (p *plane) sign(c *x509.Certificate) (crt, key []byte, err error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if c.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, nil, err
	}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, c, p.ca, k.Public(), p.caKey)
	if err != nil {
		return nil, nil, err
	}
	private, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		return nil, nil, err
	}
	return encode("CERTIFICATE", der), encode("EC PRIVATE KEY", private), nil
}

func encode(kind string, b []byte) []byte {
	var out bytes.Buffer
	_ = pem.Encode(&out, &pem.Block{Type: kind, Bytes: b})
	return out.Bytes()
}
