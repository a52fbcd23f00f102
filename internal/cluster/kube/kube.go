package kube

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/kubeclient"
	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// DefaultRefresh is how often a claim is read again if it may not be watched. It is about the
// interval of the kubelet, which has no other way to learn of an expansion.
const DefaultRefresh = 90 * time.Second

// Catalog receives the objects of the API server; [source.Catalog] implements it.
type Catalog interface {
	Apply(provider string, u source.Update) error
	Synced(provider string)
}

// Config configures a Provider.
type Config struct {
	Core    *kubeclient.Core
	Storage *kubeclient.Storage
	// Bulk reads claims, volumes and attachments, which may be as many as the pods have claims; nil
	// means Core and Storage. With limits of its own, it does not delay pods, secrets and
	// configMaps.
	Bulk *kubeclient.Clients
	// Certificates reads ClusterTrustBundles; nil means that there are none. CertificatesBeta reads
	// them from a server that has only v1beta1; it may be nil.
	Certificates     *kubeclient.Certificates
	CertificatesBeta *kubeclient.CertificatesBeta
	NodeName         string
	Catalog          Catalog
	// Refresh is how often claims that may not be watched are read again; 0 means DefaultRefresh.
	// Each pause is randomly extended by up to a fifth.
	Refresh time.Duration
	// KV stores the last known objects for a start without the API server; if it is nil, nothing is
	// stored.
	KV KV
	// OnNode receives this node's object whenever it changes, or nil if there is none. It must not
	// block.
	OnNode func(*corev1.Node)
	// OnNodeRefused is called when this identity may not read the Node. It may be nil.
	OnNodeRefused func()
	// Logger may be nil.
	Logger *slog.Logger
}

// Provider delivers the API server's objects to the catalog. See the package comment.
type Provider struct {
	config Config
	logger *slog.Logger
	kinds  map[string]kind
	// gathers read the kinds with as many objects as pods have claims.
	gathers map[string]*gather
	poke    chan struct{} // capacity 1: wanted changed
	memory  *memory
	claims  verdict
	// attachments says which attachments may be delivered.
	attachments *attachments
	uids        map[source.Key]types.UID // of restored objects; read-only once followers run

	problems outage.Findings // what could not be read
	restores atomic.Int64    // how often the server's versions have begun again

	mu sync.Mutex // guards the fields below
	// wanted holds the keys that each pod needs.
	wanted map[source.Key][]source.Key
	// followers holds the running followers, by the key that they read.
	followers map[source.Key]*follower
	changed   chan struct{} // closed when problems changes
	// bundles holds the keys of the delivered ClusterTrustBundles.
	bundles map[source.Key]bool
}

// New returns a Provider that does nothing until Run is called.
func New(c Config) *Provider {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Refresh = cmp.Or(c.Refresh, DefaultRefresh)
	kinds := kinds(c)
	return &Provider{
		gathers: map[string]*gather{
			resolve.KindClaim:  newGather(resolve.KindClaim, kinds[resolve.KindClaim].lister),
			resolve.KindVolume: newGather(resolve.KindVolume, kinds[resolve.KindVolume].lister),
		},
		attachments: newAttachments(),
		memory:      newMemory(c.KV, c.Logger), uids: map[source.Key]types.UID{},
		config: c, logger: c.Logger, kinds: kinds, poke: make(chan struct{}, 1),
		wanted: map[source.Key][]source.Key{}, followers: map[source.Key]*follower{},
		changed: make(chan struct{}), bundles: map[source.Key]bool{},
	}
}

// Demand sets the objects that a pod needs; see [source.Config]. It never blocks.
func (p *Provider) Demand(pod source.Key, objects []source.Key) {
	p.mu.Lock()
	if objects == nil {
		delete(p.wanted, pod)
	} else {
		p.wanted[pod] = objects
	}
	p.mu.Unlock()
	select {
	case p.poke <- struct{}{}:
	default:
	}
}

// Run reads and watches until ctx ends, which is not an error. Call it once.
func (p *Provider) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	known := p.restore(ctx)
	if p.config.KV != nil {
		all.Go(func() { p.memory.run(ctx) })
	}
	all.Go(func() { p.podStream(known).run(ctx) })
	all.Go(func() { p.nodeStream().run(ctx) })
	for {
		p.follow(ctx, &all)
		select {
		case <-p.poke:
		case <-ctx.Done():
			return nil
		}
	}
}

// follow starts a follower for every newly needed object, and ends those that no pod needs any
// longer.
func (p *Provider) follow(ctx context.Context, all *sync.WaitGroup) {
	p.mu.Lock()
	needed := p.needed()
	var forget []source.Key
	for key, f := range p.followers {
		if !needed[key] {
			f.end()
			delete(p.followers, key)
			forget = append(forget, key)
			if key.Kind == resolve.KindTrustBundles {
				forget = append(forget, p.forgetBundles()...)
			}
		}
	}
	for key := range needed {
		if p.followers[key] == nil {
			f := newFollower(ctx, p, key)
			p.followers[key] = f
			all.Go(f.run)
		}
	}
	p.mu.Unlock()
	slices.SortFunc(forget, source.Key.Compare)
	for _, key := range forget {
		p.setFinding(outage.Finding{What: key.String()})
	}
	if len(forget) > 0 {
		p.apply(source.Update{Remote: source.Remote{Forget: forget}})
	}
}

// needed returns the keys that pods need; the caller holds p.mu.
func (p *Provider) needed() map[source.Key]bool {
	needed := map[source.Key]bool{}
	for _, keys := range p.wanted {
		for _, key := range keys {
			if _, known := p.kinds[key.Kind]; known && key.Kind != resolve.KindNode { // the Node has its own stream
				needed[key] = true
			}
		}
	}
	return needed
}

// refetch requests another read of the matching objects that pods need.
func (p *Provider) refetch(match func(source.Key) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, f := range p.followers {
		if match(key) {
			f.refetch()
		}
	}
}

// serverRestored has every object read again, whatever the version of the one that is known.
func (p *Provider) serverRestored() {
	p.restores.Add(1)
	p.refetch(func(source.Key) bool { return true })
}

func (p *Provider) apply(u source.Update) {
	if err := p.config.Catalog.Apply(source.Kube, u); err != nil {
		p.logger.Error("catalog rejected objects of the API server", "err", err)
	}
	p.memory.note(u)
}

// Secret reads a secret for one CSI request and does not store it, as the kubelet does. It is for
// secrets of persistent volumes, which pods do not name.
func (p *Provider) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	key := source.Key{Kind: resolve.KindSecret, Namespace: namespace, Name: name}
	obj, err := kindOf(p.config.Core.Secrets).get(ctx, key) // not limited by turns, because a CSI call waits for it
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", key, outage.Explain(err), outage.Wrap(err))
	}
	return obj.(*corev1.Secret), nil
}
