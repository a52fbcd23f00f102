package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/host/holders"
	"github.com/csi-volmgr/csi-volmgr/internal/host/leftover"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func (b *backend) Who(_ context.Context, q server.WhoQuery) (holders.Report, error) {
	const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	return holders.Report{
		Mounts: []string{"/root/globalmount"},
		Processes: []holders.Process{
			{PID: 41277, Name: "rsync", Container: holders.Container{ID: id, Runtime: "containerd", Pod: string(webUID)}, Uses: []holders.Use{{Kind: "cwd", Path: "/data"}}, More: 3},
			{PID: 7, Name: "bash", Uses: []holders.Use{{Kind: "cwd", Path: "/x"}}},
		},
		Namespaces: []holders.Namespace{{ID: "mnt:[5]", PID: 9, Name: "fused", Container: holders.Container{Unit: "fused.service"}, Mounts: []string{"/host/globalmount"}}},
		Devices:    []holders.Device{{Name: "loop3", Kind: "loop", Of: "/root/globalmount/x.img"}},
		Unread:     []holders.Unread{{PID: 8, Name: "stuck", Why: "its memory map is locked"}},
	}, b.ask(fmt.Sprintf("who %+v", q))
}

func (b *backend) Leftovers(_ context.Context, by audit.By, how server.GC) ([]leftover.Item, error) {
	remove := how != server.GCList
	items := []leftover.Item{
		{Kind: leftover.Pod, Path: "/root/pods/a", Safe: true, Why: "only empty directories", Removed: remove},
		{Kind: leftover.Mount, Path: "/root/pods/b/x", Why: "nfs4 is mounted"},
	}
	if remove {
		items = append(items, leftover.Item{Kind: leftover.Staging, Path: "/root/s", Safe: true, Error: "disk is gone"})
	}
	if how == server.GCLost {
		items = append(items, leftover.Item{Kind: "use", Path: "volume db", Removed: true, Why: "lost"})
	}
	return items, b.ask(fmt.Sprintf("leftovers remove=%v by %d", remove, by.UID))
}

func (b *backend) ReleaseVolume(_ context.Context, by audit.By, r server.Release) (string, error) {
	return "with the data of claim bank/data; the next claim that asks for it gets both", b.ask(fmt.Sprintf("release %s: %s", r.Volume, r.Reason))
}

func (b *backend) SetReclaim(_ context.Context, by audit.By, r server.Reclaim) (string, error) {
	return "pv-data", b.ask(fmt.Sprintf("reclaim %+v by %d", r, by.UID))
}

func (b *backend) Unowned(context.Context) (server.Unowned, error) {
	return server.Unowned{
		Items: []server.Stored{
			{Kind: "volume", Driver: "d.example", Handle: "vol-9", SizeBytes: 64 << 20, MayBe: "claim default/new"},
			{Kind: "snapshot", Driver: "d.example", Handle: "snap-9", Of: "vol-1", Created: fixed},
		},
		Unlisted: []server.Unlisted{{Driver: "e.example", Why: "it cannot list volumes (LIST_VOLUMES)"}},
	}, b.ask("unowned")
}

func (b *backend) Blocks(_ context.Context, q server.BlocksQuery, each func([]server.BlockRange) error) (int64, error) {
	err := b.ask(fmt.Sprintf("blocks %+v", q))
	switch {
	case q.Name == "absent":
		return 0, fmt.Errorf("%w: snapshot %s/%s", server.ErrNotFound, q.Namespace, q.Name)
	case q.Name == "monday":
		return 0, err
	case err == nil:
		err = each([]server.BlockRange{{Offset: 0, Size: 4096}, {Offset: 8192, Size: 1 << 40}})
	}
	if q.Name == "broken" {
		err = errors.New("driver nfs.example.com: the stream broke")
	}
	return 1 << 41, err
}

func (b *backend) Forget(_ context.Context, by audit.By, f server.Forget) (string, error) {
	return "", b.ask(fmt.Sprintf("forget %+v by %d", f, by.UID))
}

func (b *backend) Retry(_ context.Context, _ audit.By, r server.Retry) error {
	return b.ask(fmt.Sprintf("retry %+v", r))
}

func (b *backend) AcceptRecovery(_ context.Context, _ audit.By, reason string) ([]state.Place, error) {
	return []state.Place{{Path: "/root/pods/u/volumes/kubernetes.io~csi/pv/mount"}}, b.ask("accept " + reason)
}

func (b *backend) SetDrain(_ context.Context, _ audit.By, d server.Drain) error {
	return b.ask(fmt.Sprintf("drain %q %q", d.Mode, d.Reason))
}

func (b *backend) EndEmptying(context.Context, audit.By) error { return b.ask("end emptying") }

func (b *backend) Draining() server.Drain { return server.Drain{} }

// Faults: A186.
func TestAcceptingLostRecordsNeedsAReason(t *testing.T) {
	r := newRig(t, mounted(fixed))
	if code := r.do(t, "journal", "accept", "--reason= "); code != exitUsage {
		t.Errorf("without a reason: exit code %d", code)
	}
	const want = "no longer managed: /root/pods/u/volumes/kubernetes.io~csi/pv/mount\naccepted\n"
	if code := r.do(t, "journal", "accept", "--reason=none runs"); code != exitDone || r.stdout.String() != want {
		t.Errorf("exit code %d: %s%s", code, r.stdout.String(), r.stderr.String())
	}
}
