package server

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/stats"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite golden files")

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const (
	nfs    = state.DriverName("nfs.example.com")
	webUID = state.PodUID("11111111-2222-3333-4444-555555555555")
	dbUID  = state.PodUID("aaaaaaaa-2222-3333-4444-555555555555")
)

func before(d time.Duration) time.Time { return now.Add(-d) }

var (
	web = state.Pod{UID: webUID, Namespace: "default", Name: "web"}
	db  = state.Pod{UID: dbUID, Namespace: "default", Name: "db"}
)

// nfsVolume returns the record of claim default/data, which web wants, before the first step.
func nfsVolume() manager.VolumeStatus {
	return manager.VolumeStatus{
		Volume: state.Volume{
			ID: state.SharedID(nfs, "vol-1"),
			Spec: &state.Spec{
				Driver: nfs, Handle: "vol-1", Name: "pv-data", Claim: "default/data", Mode: state.Filesystem,
				AccessModes: []state.AccessMode{state.ReadWriteOnce}, StagePath: "/root/globalmount",
				StageRef: state.SecretRef{Namespace: "kube", Name: "nfs-key"},
			},
			Needs: state.Needs{Stage: true},
		},
		Wanted: []state.PodUID{webUID},
	}
}

// held makes the step wait, in the volume's status and in the pod's.
func held(v *manager.VolumeStatus, p *manager.PodVolumeStatus, h plan.Held, since time.Time) {
	v.Held, v.Since = h, since
	p.Step, p.Code, p.BlockedBy, p.Since = h.Step, h.Code, h.Reason, since
}

func podVolume() manager.PodVolumeStatus {
	return manager.PodVolumeStatus{
		Names: []string{"data"}, ID: state.SharedID(nfs, "vol-1"), Driver: nfs, Claim: "default/data", Mode: state.Filesystem,
	}
}

func upDriver() manager.DriverStatus {
	return manager.DriverStatus{
		DriverInfo: manager.DriverInfo{Name: nfs, Endpoint: "/run/nfs.sock", Version: "v4", Stage: true, Expand: true},
		Up:         true, Generation: 2, Since: before(3 * time.Hour), Volumes: 1,
	}
}

// one returns facts with one volume of one pod.
func one(v manager.VolumeStatus, p manager.PodVolumeStatus, listed bool) Facts {
	return Facts{
		Pods:    []manager.PodStatus{{Pod: web, Listed: listed, Ready: p.Mounted && p.Step == plan.None, Volumes: []manager.PodVolumeStatus{p}}},
		Volumes: []manager.VolumeStatus{v}, Drivers: []manager.DriverStatus{upDriver()}, Now: now,
	}
}

func failed(call, code, text string, attempts int) state.Retry {
	return state.Retry{
		Attempts: attempts, Since: before(130 * time.Second), NotBefore: now.Add(12 * time.Second),
		Call: call, Code: code, Error: text,
	}
}

func present(v *manager.VolumeStatus, p *manager.PodVolumeStatus) {
	v.Volume.Stage.Phase = state.Present
	v.Volume.SizeBytes = 1 << 30
	v.Volume.Mounts = map[state.PodUID]state.Mount{webUID: {
		Fact: state.Fact{Phase: state.Present}, MountSpec: state.MountSpec{Pod: web, Names: []string{"data"}, Target: "/root/pods/web/mount"},
	}}
	p.Phase, p.Mounted, p.HostPath = state.Present, true, "/root/pods/web/mount"
}

func driverAbsent() Facts {
	v, p := nfsVolume(), podVolume()
	held(&v, &p, plan.Held{Step: plan.Stage, Reason: "driver nfs.example.com is not registered"}, before(14*time.Minute))
	f := one(v, p, true)
	f.Drivers = []manager.DriverStatus{{ // a driver that the manager knows only from its volumes
		DriverInfo: manager.DriverInfo{Name: nfs}, Problem: "driver nfs.example.com has not registered since the daemon started", Volumes: 1,
	}}
	return f
}

func driverRefusedAtSocket() Facts {
	f := driverAbsent()
	f.Sockets = []SocketStatus{{Path: "/root/plugins_registry/nfs-reg.sock", Driver: nfs, State: "refused", Problem: "it speaks version 0.3.0 only"}}
	return f
}

func claimNotBound() Facts {
	p := manager.PodVolumeStatus{Names: []string{"data"}, Claim: "default/data", Step: plan.Resolve, BlockedBy: "pod default/web: spec.volumes[0]: claim default/data is not bound"}
	f := one(manager.VolumeStatus{}, p, true)
	f.Volumes = nil
	f.Claims = []ClaimStatus{{
		Namespace: "default", Name: "data", Phase: "Pending", Reason: "provisioner nfs.example.com is asked for 1Gi", Class: "fast",
		Retry: RetryOf(failed("CreateVolume", "ResourceExhausted", "pool is full", 4)), Cause: Cause{Code: state.CallFailed, Of: string(nfs)},
	}, {Namespace: "default", Name: "dat", Phase: "Pending"}}
	return f
}

func claimUnused() Facts {
	return Facts{
		Claims:            []ClaimStatus{{Namespace: "default", Name: "data", Phase: "Bound", Volume: "pv-data"}},
		PersistentVolumes: []PVStatus{{Name: "pv-data", Claim: "default/data", Handle: "vol-1", Status: "Bound"}}, Now: now,
	}
}

func attachWaiting() Facts {
	v, p := nfsVolume(), podVolume()
	held(&v, &p, plan.Held{Step: plan.Stage, Reason: "waiting for VolumeAttachment csi-1a2b"}, before(40*time.Second))
	return one(v, p, true)
}

func stageUnavailable() Facts {
	v, p := nfsVolume(), podVolume()
	r := failed("NodeStageVolume", "Unavailable", "connection refused", 4)
	v.Volume.Stage = state.Fact{Phase: state.Entering, Failed: &r}
	held(&v, &p, plan.Held{Step: plan.Stage, Reason: "waiting to try again after a failure", Until: r.NotBefore}, before(2*time.Minute))
	p.Retry = r
	f := one(v, p, true)
	for _, h := range []string{"vol-2", "vol-3"} {
		o := nfsVolume()
		o.Volume.ID, o.Volume.Spec.Handle = state.SharedID(nfs, h), h
		o.Volume.Spec.Name, o.Volume.Spec.Claim = "pv-"+h, "default/"+h
		f.Volumes = append(f.Volumes, o)
	}
	return f
}

// unreached is a driver whose mounts stay in its own mount namespace.
func unreached() Facts {
	v, p := nfsVolume(), podVolume()
	r := failed("NodePublishVolume", "", "answered OK without the effect: nothing is mounted at /root/pods/web/mount", 2)
	r.Reason = state.NoEffect
	v.Volume.Stage.Phase = state.Present
	v.Volume.Mounts = map[state.PodUID]state.Mount{webUID: {
		Fact: state.Fact{Phase: state.Entering, Failed: &r}, MountSpec: state.MountSpec{Pod: web, Target: "/root/pods/web/mount"}, NoEffect: 2,
	}}
	held(&v, &p, plan.Held{Step: plan.Publish, Pod: webUID, Reason: "waiting to try again after a failure", Until: r.NotBefore}, before(2*time.Minute))
	p.Retry = r
	f := one(v, p, true)
	f.Drivers[0].Unreached = "process 77 of the driver runs in another mount namespace, and its mount of /root (/root) is private"
	return f
}

// stageGone is a stage that was unmounted by hand; the driver does not restore it while pods have the volume.
func stageGone() Facts {
	f := aborted()
	v := &f.Volumes[0]
	v.Volume.Mounts = map[state.PodUID]state.Mount{}
	for _, pod := range []state.Pod{web, db} {
		v.Volume.Mounts[pod.UID] = state.Mount{Fact: state.Fact{Phase: state.Present}, MountSpec: state.MountSpec{Pod: pod}}
	}
	return f
}

// deadMount is a FUSE file system whose server has ended: db has it, and web cannot get it.
func deadMount() Facts {
	v, p := nfsVolume(), podVolume()
	v.Volume.Stage.Phase = state.Present
	v.Volume.Mounts = map[state.PodUID]state.Mount{dbUID: {Fact: state.Fact{Phase: state.Present}, MountSpec: state.MountSpec{Pod: db}}}
	held(&v, &p, plan.Held{Step: plan.Publish, Pod: webUID, Code: plan.DeadMount, Dead: true, Reason: "the server of the mounted file system has ended; it is mounted anew once no pod has it"}, before(time.Minute))
	f := one(v, p, true)
	mounted := podVolume()
	mounted.Phase, mounted.Mounted, mounted.HostPath = state.Present, true, "/root/pods/db/mount"
	f.Pods = append(f.Pods, manager.PodStatus{Pod: db, Listed: true, Volumes: []manager.PodVolumeStatus{mounted}})
	f.Stats = []stats.Status{{
		Key: string(v.Volume.ID), Driver: nfs, Health: stats.Abnormal, At: now, HealthSince: before(time.Minute),
		Conditions: []stats.Condition{{Status: "STORAGE_UNREACHABLE", Message: "statfs /root/pods/db/mount: transport endpoint is not connected", Kernel: true}},
	}}
	return f
}

// deadAndHeld is deadMount before another pod wants the volume.
func deadAndHeld() Facts {
	f := deadMount()
	f.Volumes[0].Held = plan.Held{}
	f.Pods = f.Pods[1:]
	return f
}

// strayFile is a target that is not removed because it has files in it.
func strayFile() Facts {
	f := targetBusy()
	v := &f.Volumes[0]
	m := v.Volume.Mounts[webUID]
	r := failed("NodeUnpublishVolume", "Internal", "remove /root/pods/web/mount: directory not empty", 1)
	r.Stray = 2
	m.Failed = &r
	v.Volume.Mounts[webUID] = m
	f.Pods[0].Volumes[0].Retry = r
	return f
}

func stageInFlight() Facts {
	v, p := nfsVolume(), podVolume()
	v.Volume.Stage.Phase = state.Entering
	v.Call, v.Since = plan.Op{Kind: plan.Stage}, before(12*time.Second)
	p.Step, p.Since = plan.Stage, v.Since
	return one(v, p, true)
}

// walking is a publish that is changing the group of the volume's files.
func walking() Facts {
	f := stageInFlight()
	v, p := &f.Volumes[0], &f.Pods[0].Volumes[0]
	v.Volume.Stage.Phase = state.Present
	v.Call, v.Since = plan.Op{Kind: plan.Publish, Pod: webUID}, before(3*time.Minute)
	v.Progress = "120000 files and directories checked for the pod's fsGroup 2000 so far"
	p.Step, p.Since = plan.Publish, v.Since
	return f
}

// aborted is a driver that still works on an earlier call.
func aborted() Facts {
	f := stageUnavailable()
	r := failed("NodeStageVolume", "Aborted", "an operation with the given Volume ID already exists", 12)
	r.Since, r.First = before(14*time.Minute), "DeadlineExceeded: no answer within 2m0s"
	f.Volumes[0].Volume.Stage.Failed, f.Pods[0].Volumes[0].Retry = &r, r
	return f
}

// overloaded is a driver that gets fewer calls than others.
func overloaded() Facts {
	f := stageUnavailable()
	f.Drivers[0].Limit, f.Drivers[0].Calls = 4, 3
	return f
}

// labelsDiffer is a volume of two pods with different labels.
func labelsDiffer() Facts {
	v, p := nfsVolume(), podVolume()
	present(&v, &p)
	v.Volume.Mounts[dbUID] = state.Mount{Fact: state.Fact{Phase: state.Present}, MountSpec: state.MountSpec{Pod: db}}
	v.SELinux = &manager.SELinuxStatus{Label: "system_u:object_r:container_file_t:s0:c1", Conflicts: []state.PodUID{dbUID}}
	return one(v, p, true)
}

func refusedInvalid() Facts {
	f := stageUnavailable()
	r := failed("NodeStageVolume", "InvalidArgument", "share \"/x\" is not exported\x1b[31m", 1)
	f.Volumes[0].Volume.Stage.Failed, f.Pods[0].Volumes[0].Retry = &r, r
	return f
}

func permissionDenied() Facts {
	f := stageUnavailable()
	r := failed("NodeStageVolume", "PermissionDenied", "bad key", 2)
	f.Volumes[0].Volume.Stage.Failed, f.Pods[0].Volumes[0].Retry = &r, r
	return f
}

func exclusiveElsewhere() Facts {
	v, p := nfsVolume(), podVolume()
	v.Volume.Spec.AccessModes = []state.AccessMode{state.ReadWriteOncePod}
	v.Volume.Stage.Phase = state.Present
	v.Volume.Mounts = map[state.PodUID]state.Mount{dbUID: {Fact: state.Fact{Phase: state.Present}, MountSpec: state.MountSpec{Pod: db}}}
	held(&v, &p, plan.Held{Step: plan.Publish, Pod: webUID, Reason: "the volume uses the ReadWriteOncePod access mode and is already in use by another pod, default/db"}, before(time.Minute))
	return one(v, p, true)
}

func sourcesNotSynced() Facts {
	v, p := nfsVolume(), podVolume()
	present(&v, &p)
	v.Wanted, p.Mounted, p.HostPath = nil, false, ""
	held(&v, &p, plan.Held{Step: plan.Unpublish, Pod: webUID, Reason: "nothing is removed until every source of pods has listed its pods"}, before(5*time.Second))
	f := one(v, p, false)
	f.NotReady = []string{"source file: /etc/manifests has not been read yet"}
	return f
}

// renewalWaitsForDriver is a mount whose tokens expire while its driver is away.
func renewalWaitsForDriver() Facts {
	v, p := nfsVolume(), podVolume()
	present(&v, &p)
	const gone = "driver nfs.example.com is not registered: its socket is gone"
	held(&v, &p, plan.Held{Step: plan.Republish, Pod: webUID, Reason: gone, Until: now.Add(30 * time.Second)}, before(time.Minute))
	f := one(v, p, true)
	f.Drivers[0].Up, f.Drivers[0].Since, f.Drivers[0].Problem = false, before(time.Minute), gone
	return f
}

func removalWaitsForDriver() Facts {
	f := sourcesNotSynced()
	f.NotReady = nil
	v := &f.Volumes[0]
	m := v.Volume.Mounts[webUID]
	m.Phase = state.Leaving
	v.Volume.Mounts[webUID] = m
	held(v, &f.Pods[0].Volumes[0], plan.Held{Step: plan.Unpublish, Pod: webUID, Reason: "driver nfs.example.com is not registered"}, before(time.Minute))
	f.Drivers[0].Up, f.Drivers[0].Since = false, before(time.Minute)
	f.Drivers[0].Problem = "driver nfs.example.com is not registered: its socket is gone"
	return f
}

func targetBusy() Facts {
	f := removalWaitsForDriver()
	f.Drivers[0].Up, f.Drivers[0].Problem = true, ""
	v := &f.Volumes[0]
	m := v.Volume.Mounts[webUID]
	m.Failed = failed("NodeUnpublishVolume", "Internal", "target is busy", 9).Kept()
	v.Volume.Mounts[webUID] = m
	held(v, &f.Pods[0].Volumes[0], plan.Held{Step: plan.Unpublish, Pod: webUID, Reason: "waiting to try again after a failure"}, before(time.Minute))
	f.Pods[0].Volumes[0].Retry = m.Retry()
	return f
}

func expandRefused() Facts {
	v, p := nfsVolume(), podVolume()
	present(&v, &p)
	r := failed("NodeExpandVolume", "FailedPrecondition", "volume is in use", 1)
	r.Final = true
	v.Volume.ExpandFailed = &r
	held(&v, &p, plan.Held{Step: plan.Expand, Pod: webUID, Reason: "the driver's answer forbids a retry until the driver registers again, what pods want changes, or the volume is staged again"}, before(time.Minute))
	p.Retry = r
	return one(v, p, true)
}

func quarantined() Facts {
	v := manager.VolumeStatus{Volume: state.Volume{ID: state.SharedID(nfs, "vol-1")}, Quarantined: "record version 9 is newer than this program"}
	return Facts{Volumes: []manager.VolumeStatus{v}, Drivers: []manager.DriverStatus{upDriver()}, Now: now}
}

// contentKept is a configMap that cannot be read: the last published content stays, and the explanation says from
// when it is.
func contentKept() Facts {
	const kind = state.DriverName("kubernetes.io/configmap")
	id := state.PodVolumeID(kind, webUID, "settings")
	retry := state.Retry{Attempts: 1, Since: before(time.Minute), Error: "configMap default/settings: not known yet: sources file have not spoken", NotBefore: now.Add(time.Minute)}
	v := manager.VolumeStatus{Volume: state.Volume{ID: id, Spec: &state.Spec{Driver: kind, Builtin: true, Name: "settings", Mode: state.Filesystem}}, Wanted: []state.PodUID{webUID}}
	p := manager.PodVolumeStatus{
		Names: []string{"settings"}, ID: id, Driver: kind, Mode: state.Filesystem, Mounted: true, Phase: state.Present,
		HostPath: "/root/pods/web/settings", ContentAt: before(3 * time.Hour), Retry: retry,
	}
	held(&v, &p, plan.Held{Step: plan.Republish, Pod: webUID, Reason: "pausing after a failure", Until: retry.NotBefore}, before(time.Minute))
	return Facts{
		Pods:    []manager.PodStatus{{Pod: web, Listed: true, Volumes: []manager.PodVolumeStatus{p}}},
		Volumes: []manager.VolumeStatus{v}, Drivers: []manager.DriverStatus{{DriverInfo: manager.DriverInfo{Name: kind, Builtin: true}, Up: true}}, Now: now,
	}
}

// contentBroken is a configMap that no longer has what the pod needs: the last published content stays, and shares
// one volume with the unresolved new one.
func contentBroken() Facts {
	f := contentKept()
	v, p := &f.Volumes[0], &f.Pods[0].Volumes[0]
	v.Held = plan.Held{}
	p.Step, p.Retry, p.Since = plan.Resolve, state.Retry{}, time.Time{}
	p.BlockedBy = "pod default/web: spec.volumes[0].configMap.items[0].key: found \"mode\", want a key of configMap default/settings"
	return f
}

func allFine() Facts {
	v, p := nfsVolume(), podVolume()
	present(&v, &p)
	f := one(v, p, true)
	cache := manager.VolumeStatus{Volume: state.Volume{
		ID:   state.PodVolumeID("kubernetes.io/empty-dir", webUID, "cache"),
		Spec: &state.Spec{Driver: "kubernetes.io/empty-dir", Name: "cache", Builtin: true, Mode: state.Filesystem},
	}, Wanted: []state.PodUID{webUID}}
	f.Volumes = append(f.Volumes, cache)
	f.Pods[0].Volumes = append(f.Pods[0].Volumes, manager.PodVolumeStatus{
		Names: []string{"cache"}, ID: cache.Volume.ID, Driver: "kubernetes.io/empty-dir", Mode: state.Filesystem,
		Mounted: true, Phase: state.Present, HostPath: "/root/pods/web/cache",
	})
	return f
}

func nothingKnown() Facts {
	return Facts{
		Pods:     []manager.PodStatus{{Pod: state.Pod{UID: "u", Namespace: "shop", Name: "web"}, Listed: true}},
		Problems: []Problem{{Source: "file", File: "/etc/manifests/web.yaml", Line: 7, Field: "spec.volumez", Object: "pod default/web", Message: "unknown field"}},
		NotReady: []string{"source api: not read yet"}, Now: now,
	}
}

// takesNoWrites is a volume whose file system has become read-only.
func takesNoWrites() Facts {
	f := allFine()
	f.Pods[0].Volumes[0].Drift = plan.Fault{AfterError: true}.String()
	return f
}

// situation is explained by the command in its fields; the golden file has the explanation.
type situation struct {
	file, kind, name, verdict string
	facts                     Facts
}

func situations() []situation {
	return []situation{
		{"driver-absent", "pod", "default/web", Waiting, driverAbsent()},
		{"driver-absent-of-driver", "driver", "nfs.example.com", Waiting, driverAbsent()},
		{"driver-refused-at-its-socket", "pod", "default/web", Waiting, driverRefusedAtSocket()},
		{"claim-not-bound", "pod", "default/web", Stuck, claimNotBound()},
		{"claim-not-bound-of-volume", "volume", "default/data", Stuck, claimNotBound()},
		{"claim-bound-and-unused", "volume", "data", Fine, claimUnused()},
		{"pv-unused", "volume", "pv-data", Fine, claimUnused()},
		{"attach-waiting", "pod", "default/web", Waiting, attachWaiting()},
		{"stage-in-flight", "volume", "data", Working, stageInFlight()},
		{"stage-unavailable", "volume", "pv-data", Stuck, stageUnavailable()},
		{"stage-unavailable-of-pod", "pod", "default/web", Stuck, stageUnavailable()},
		{"stage-unavailable-of-driver", "driver", "nfs.example.com", Stuck, stageUnavailable()},
		{"unreached", "pod", "default/web", Stuck, unreached()},
		{"unreached-of-driver", "driver", "nfs.example.com", Stuck, unreached()},
		{"stage-gone-under-pods", "pod", "default/web", Stuck, stageGone()},
		{"dead-mount", "pod", "default/web", Stuck, deadMount()},
		{"dead-mount-of-volume", "volume", "data", Stuck, deadMount()},
		{"dead-mount-that-a-pod-has", "pod", "default/db", Stuck, deadAndHeld()},
		{"stray-file", "volume", "data", Stuck, strayFile()},
		{"walking", "volume", "data", Working, walking()},
		{"walking-of-pod", "pod", "default/web", Working, walking()},
		{"overloaded", "driver", "nfs.example.com", Stuck, overloaded()},
		{"labels-differ", "pod", "default/web", Fine, labelsDiffer()},
		{"labels-differ-of-volume", "volume", "data", Fine, labelsDiffer()},
		{"aborted", "pod", "default/web", Stuck, aborted()},
		{"refused-invalid-argument", "pod", "default/web", Stuck, refusedInvalid()},
		{"permission-denied", "pod", "default/web", Stuck, permissionDenied()},
		{"exclusive-elsewhere", "pod", "default/web", Waiting, exclusiveElsewhere()},
		{"sources-not-synced", "volume", "data", Waiting, sourcesNotSynced()},
		{"renewal-waits-for-driver", "pod", "default/web", Waiting, renewalWaitsForDriver()},
		{"renewal-waits-for-driver-of-volume", "volume", "data", Waiting, renewalWaitsForDriver()},
		{"removal-waits-for-driver", "pod", "default/web", Waiting, removalWaitsForDriver()},
		{"target-busy", "volume", "data", Stuck, targetBusy()},
		{"expand-refused", "volume", "data", Stuck, expandRefused()},
		{"quarantined", "volume", "nfs.example.com^vol-1", Stuck, quarantined()},
		{"all-fine", "pod", "default/web", Fine, allFine()},
		{"all-fine-of-volume", "volume", "data", Fine, allFine()},
		{"all-fine-of-driver", "driver", "nfs.example.com", Fine, allFine()},
		{"content-kept", "pod", "default/web", Working, contentKept()},
		{"content-broken", "pod", "default/web", Stuck, contentBroken()},
		{"nothing-known", "pod", "default/web", Unknown, nothingKnown()},
		{"nothing-known-of-driver", "driver", "smb.example.com", Unknown, driverRefusedAtSocket()},
		{"read-only", "pod", "default/web", Stuck, takesNoWrites()},
	}
}

// The explanation of each situation that keeps a volume from its pod is complete: what is wanted, the step, what
// blocks it, the last error, what is next, what to do.
//
// Items: G09.
// Faults: A162, A163, A164.
func TestExplainTellsEverySituation(t *testing.T) {
	for _, tt := range situations() {
		t.Run(tt.file, func(t *testing.T) {
			e, err := Explain(tt.facts, tt.kind, tt.name)
			if err != nil {
				t.Fatal(err)
			}
			if e.Verdict != tt.verdict {
				t.Errorf("verdict %q, want %q", e.Verdict, tt.verdict)
			}
			golden(t, filepath.Join("testdata", "explain", tt.file+".txt"), e.String())
		})
	}
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; rewrite with -update):\n%s", path, diff)
	}
}

func TestExplainRefusesAnotherKindAndAnAmbiguousName(t *testing.T) {
	f := allFine()
	twin := f.Volumes[0]
	twin.Volume.ID = state.SharedID(nfs, "vol-9")
	f.Volumes = append(f.Volumes, twin)
	if _, err := Explain(f, "volume", "data"); !errors.Is(err, ErrInvalid) {
		t.Errorf("ambiguous name: got %v, want ErrInvalid", err)
	} else if !strings.Contains(err.Error(), "vol-9") || !strings.Contains(err.Error(), "vol-1") {
		t.Errorf("ambiguous name: %v does not list both ids", err)
	}
	if _, err := Explain(f, "node", "x"); !errors.Is(err, ErrInvalid) {
		t.Errorf("kind node: got %v, want ErrInvalid", err)
	}
}

// Every gRPC code has advice of its own.
func TestEveryCodeHasAdvice(t *testing.T) {
	seen := map[string]string{}
	for _, code := range []string{
		"InvalidArgument", "NotFound", "PermissionDenied", "FailedPrecondition", "OutOfRange", "ResourceExhausted",
		"Unimplemented", "AlreadyExists", "DeadlineExceeded", "Aborted", "Unavailable", "Internal",
	} {
		s := step{kind: plan.Stage, driver: nfs, spec: *nfsVolume().Volume.Spec, retry: failed("NodeStageVolume", code, "x", 1)}
		a := s.advice()
		if a == "" || seen[a] != "" {
			t.Errorf("%s: advice %q, also that of %q", code, a, seen[a])
		}
		seen[a] = code
	}
}

// A name that a script left empty names no volume, not even the only one without a claim.
func TestFindVolumeByAnEmptyName(t *testing.T) {
	v := VolumeStatus{Volume: Volume{ID: "d^v"}}
	if got, err := FindVolume([]VolumeStatus{v}, ""); !errors.Is(err, ErrInvalid) {
		t.Errorf("found %+v, %v", got, err)
	}
}

func TestFindVolumeKnowsAShortenedID(t *testing.T) {
	f := allFine()
	for _, v := range f.Volumes {
		got, err := FindVolume(each(f.Volumes, volumeStatus), ShortID(v.Volume.ID))
		if err != nil || got.Volume.ID != v.Volume.ID {
			t.Errorf("%s: got %s, %v", ShortID(v.Volume.ID), got.Volume.ID, err)
		}
	}
}

// A pod whose status says that it has ended is explained as that, and is no pod that is being mounted.
func TestAPodThatHasEndedIsExplained(t *testing.T) {
	f := Facts{Now: now, Pods: []manager.PodStatus{{Pod: web, Listed: true}}}
	e, err := Explain(f, "pod", "default/web")
	if got := e.String(); err != nil || e.Verdict != Fine || !strings.Contains(got, "nothing: its status.phase says that its containers have ended") || !strings.Contains(got, AdviceEnded) {
		t.Errorf("%v\n%s", err, got)
	}
	f.Cluster = true
	if e, _ := Explain(f, "pod", "default/web"); strings.Contains(e.String(), AdviceEnded) {
		t.Errorf("in a cluster:\n%s", e)
	}
	f.Pods[0].Ready = true
	if e, _ := Explain(f, "pod", "default/web"); strings.Contains(e.String(), "ended") {
		t.Errorf("a pod without volumes:\n%s", e)
	}
}

// A driver whose node id has changed while its volumes are attached is explained with that; another driver is not.
func TestAChangedNodeIDIsExplained(t *testing.T) {
	f := Facts{Now: now, Drivers: []manager.DriverStatus{
		{DriverInfo: manager.DriverInfo{Name: "d"}, Up: true}, {DriverInfo: manager.DriverInfo{Name: "other"}, Up: true},
	}, Problems: []Problem{{Source: SourceDrivers, Object: "driver d", Message: "its volumes h are attached to node id n1"}}}
	for name, want := range map[string]string{"d": Stuck, "other": Fine} {
		e, err := Explain(f, "driver", name)
		if err != nil || e.Verdict != want || strings.Contains(e.String(), "attached to node id n1") != (want == Stuck) {
			t.Errorf("%v\n%s", err, e)
		}
	}
}
