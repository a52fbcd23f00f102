package ephemeral

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// Two attempts to delete a claim have erasePause between them, and eraseAgain if nothing changes.
const (
	erasePause = time.Second
	eraseAgain = 30 * time.Second
)

func keyOfRow(name string) source.Key {
	namespace, claim, _ := strings.Cut(name, "/")
	return claimKey(namespace, claim)
}

// facts collects what the decision about a claim depends on. asker is the pod that gets the claim if one is made.
func (p *Provider) facts(claim source.Key, r *row) (f facts, asker *corev1.Pod) {
	p.mu.Lock()
	askers, user := p.uses.askers(claim), p.uses.plain(claim)
	p.mu.Unlock()
	f = facts{made: r != nil, silent: p.c.Silent(), user: user, lost: p.c.Lost(), unread: p.c.Catalog.Unread(claim)}
	if by := p.c.Catalog.Provider(claim); by != Name {
		f.other = by
	}
	for _, key := range askers {
		if pod, ok := p.c.Catalog.Get(key).(*corev1.Pod); ok && asker == nil {
			f.asked, asker = true, pod
		}
	}
	if r == nil {
		if f.other == "" && f.asked {
			f.left = p.c.Claims.Left(claim)
		}
		return f, asker
	}
	f.going = r.Going
	key, uid := r.owner()
	pod, listed := p.c.Catalog.Get(key).(*corev1.Pod)
	f.listed = listed && pod.UID == uid
	if why := p.c.Catalog.Unread(key); f.unread == "" && !listed {
		f.unread = why
	}
	return f, asker
}

// step takes the next step for a claim. What it changes is made durable with the batch.
func (p *Provider) step(ctx context.Context, claim source.Key, r *row, b *batch, start func(func())) {
	f, pod := p.facts(claim, r)
	s, wait := next(f)
	switch s {
	case create:
		wait = p.create(claim, pod, b)
	case end:
		going := r.record
		going.Going = true
		p.store(claim, &going, b)
	case drop:
		p.store(claim, nil, b)
		b.remove = append(b.remove, claim)
	case erase:
		p.erase(ctx, claim, r, start)
		return
	default:
		if f.going && f.user != "" && f.other == "" && p.c.Catalog.Provider(claim) == "" {
			p.put(r.Claim)
		}
	}
	p.setWait(claim, wait, wait != "")
}

// create makes the claim for the pod, or returns why it cannot.
func (p *Provider) create(claim source.Key, pod *corev1.Pod, b *batch) (wait string) {
	for _, v := range pod.Spec.Volumes {
		if v.Ephemeral == nil || resolve.EphemeralClaim(pod, v) != claim {
			continue
		}
		made := newClaim(pod, v)
		if faults := resolve.Check(made); len(faults) > 0 {
			return fmt.Sprintf("volume %s of %s: ephemeral.volumeClaimTemplate: %s", v.Name,
				source.Key{Kind: resolve.KindPod, Namespace: pod.Namespace, Name: pod.Name}, faults[0])
		}
		p.store(claim, &record{Claim: made}, b)
		b.put = append(b.put, made)
		p.c.Logger.Info("claim of a generic ephemeral volume is made", "claim", claim.String(), "pod", pod.Name)
	}
	return ""
}

// store adds a row to the batch, or its removal if r is nil. It is in effect once the batch is durable.
func (p *Provider) store(claim source.Key, r *record, b *batch) {
	var value []byte
	if r != nil {
		var err error
		if value, err = encode(*r); err != nil { // these types hold strings, numbers and booleans
			p.c.Logger.Error("cannot encode an ephemeral claim", "claim", claim.String(), "err", err)
			return
		}
	}
	b.values[rowName(claim)] = value
	b.stored = append(b.stored, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if r == nil {
			delete(p.rows, claim)
		} else {
			p.rows[claim] = &row{record: *r}
		}
		p.dirty[claim] = true
		p.signal()
	})
}

// put lists a claim in the catalog.
func (p *Provider) put(claim *corev1.PersistentVolumeClaim) {
	if err := p.c.Catalog.Put(Name, claim); err != nil {
		p.c.Logger.Error("cannot list an ephemeral claim", "claim", claim.Name, "err", err)
	}
}

// setWait tells pods what they wait for. again means that changes of claims may end the wait.
func (p *Provider) setWait(claim source.Key, text string, again bool) {
	p.mu.Lock()
	if delete(p.waiting, claim); again {
		p.waiting[claim] = true
	}
	p.mu.Unlock()
	p.c.Catalog.SetClaimWait(claim, text)
}

// erase deletes the claim of a pod that is gone, and then its row.
func (p *Provider) erase(ctx context.Context, claim source.Key, r *row, start func(func())) {
	pod, uid := r.owner()
	going := fmt.Sprintf("the claim of %s (uid %s), which is gone, is being deleted", pod, uid)
	p.mu.Lock()
	r.erasing = true
	p.mu.Unlock()
	p.setWait(claim, going, false)
	p.c.Catalog.Delete(Name, claim)
	start(func() {
		changed := p.c.Claims.ClaimsChanged()
		note, err := p.c.Claims.DeleteEphemeral(ctx, claim, fmt.Sprintf("%s (uid %s) is gone", pod, uid))
		if err == nil {
			err = p.c.KV.CommitBucket(context.WithoutCancel(ctx), bucket, map[string][]byte{rowName(claim): nil})
		}
		if err == nil {
			p.c.Logger.Info("claim of a generic ephemeral volume went with its pod", "claim", claim.String(), "note", note)
			p.erased(claim, r, true)
			return
		}
		if ctx.Err() != nil {
			return
		}
		p.setWait(claim, going+": "+err.Error(), false)
		select {
		case <-changed:
		case <-time.After(eraseAgain): // the journal may have been full
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(erasePause):
			p.erased(claim, r, false)
		case <-ctx.Done():
		}
	})
}

// erased notes the end of an attempt to delete a claim, after which it is decided about again.
func (p *Provider) erased(claim source.Key, r *row, gone bool) {
	p.mu.Lock()
	if r.erasing = false; gone {
		delete(p.rows, claim)
	}
	p.dirty[claim] = true
	p.mu.Unlock()
	if gone {
		p.setWait(claim, "", false)
	}
	p.signal()
}
