// Package benchdef holds what every part of the harness shares: the JSON line
// a system under test prints, percentiles, process accounting and the names
// and paths of the workload.
package benchdef

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"
	"time"
)

// DriverName is the name that benchdriver registers under.
const DriverName = "bench.csi.example.com"

// Result is one JSON line. A system under test omits what it does not measure; bench adds
// the labels that it knows (rep, variant).
type Result struct {
	System    string  `json:"system"`
	Workload  string  `json:"workload"` // csi, intree
	Mode      string  `json:"mode"`     // noop, bind (driver mode)
	Phase     string  `json:"phase"`    // full, mount, restart, propagate
	Variant   string  `json:"variant,omitempty"`
	FS        string  `json:"fs,omitempty"` // of the pods' and the driver's directories (set by bench)
	Rep       int     `json:"rep"`
	Pods      int     `json:"pods"`
	Volumes   int     `json:"volumes"` // per pod
	LatencyMs float64 `json:"latency_ms"`
	Conc      int     `json:"concurrency,omitempty"`

	// Mount: per-pod latency from "pod known to the manager" until the manager reports all
	// its volumes as mounted.
	MountP50   float64 `json:"mount_p50_ms"`
	MountP90   float64 `json:"mount_p90_ms"`
	MountP99   float64 `json:"mount_p99_ms"`
	MountMax   float64 `json:"mount_max_ms"`
	TotalMs    float64 `json:"total_ms"` // first pod known -> last pod mounted
	VolsPerSec float64 `json:"vols_per_s"`
	// The same, as the driver sees it: from pod known until NodePublish of its last volume
	// returned; and until the first NodeStage started.
	DrvStartP50 float64 `json:"drv_first_call_p50_ms,omitempty"`
	DrvDoneP50  float64 `json:"drv_done_p50_ms,omitempty"`
	DrvDoneP99  float64 `json:"drv_done_p99_ms,omitempty"`
	DrvDoneMax  float64 `json:"drv_done_max_ms,omitempty"`
	// Service time of Stage+Publish of one volume as its caller sees it
	// (direct only).
	RPCP50 float64 `json:"rpc_p50_ms,omitempty"`
	RPCP99 float64 `json:"rpc_p99_ms,omitempty"`

	UnmountP50      float64 `json:"unmount_p50_ms,omitempty"`
	UnmountP90      float64 `json:"unmount_p90_ms,omitempty"`
	UnmountP99      float64 `json:"unmount_p99_ms,omitempty"`
	UnmountMax      float64 `json:"unmount_max_ms,omitempty"`
	UnmountTotalMs  float64 `json:"unmount_total_ms,omitempty"` // all pods free of volumes
	UnstageTotalMs  float64 `json:"unstage_total_ms,omitempty"` // last NodeUnstage returned
	UnmountVolsPerS float64 `json:"unmount_vols_per_s,omitempty"`
	UnmRPCP50       float64 `json:"unmount_rpc_p50_ms,omitempty"`

	// CPU of the manager process (user+sys), of the children that it reaped, and of the
	// driver, per phase.
	CPUMount     float64 `json:"cpu_mount_s"`
	CPUMountSys  float64 `json:"cpu_mount_sys_s,omitempty"`
	CPUUnmount   float64 `json:"cpu_unmount_s,omitempty"`
	CPUUnmSys    float64 `json:"cpu_unmount_sys_s,omitempty"`
	CPUKidsMount float64 `json:"cpu_children_mount_s,omitempty"`
	CPUKidsUnm   float64 `json:"cpu_children_unmount_s,omitempty"`
	CPUDrvMount  float64 `json:"cpu_driver_mount_s,omitempty"`
	CPUDrvUnm    float64 `json:"cpu_driver_unmount_s,omitempty"`
	CPU          float64 `json:"cpu_s"` // manager + children, mount + unmount

	AllocMount   float64 `json:"alloc_mount_mb,omitempty"`
	MallocsMount float64 `json:"mallocs_mount,omitempty"`
	AllocUnm     float64 `json:"alloc_unmount_mb,omitempty"`
	RSSBase      float64 `json:"rss_base_mb,omitempty"`
	RSSIdle      float64 `json:"rss_idle_mb,omitempty"`
	RSS          float64 `json:"rss_mb"` // peak
	Goroutines   int     `json:"goroutines_idle,omitempty"`
	GoroutPeak   int     `json:"goroutines_peak,omitempty"`

	IdleSecs      float64 `json:"idle_s,omitempty"`
	IdleCPU       float64 `json:"idle_cpu_pct,omitempty"`        // of one core, no pod syncs
	IdleResyncCPU float64 `json:"idle_resync_cpu_pct,omitempty"` // with periodic pod syncs
	IdleAllocMBs  float64 `json:"idle_alloc_mb_per_s,omitempty"`
	IdleDrvCalls  int64   `json:"idle_driver_calls,omitempty"`
	// Voluntary context switches: how often a thread of it woke and slept again.
	IdleSwitches float64 `json:"idle_switches_per_s,omitempty"`

	// Restart.
	SyncedMs     float64 `json:"states_synced_ms,omitempty"`
	RegisteredMs float64 `json:"registered_ms,omitempty"`
	ReadyMs      float64 `json:"all_mounted_ms,omitempty"`

	// Floor of a restart (direct only): walk the pods' directories, read each file like
	// vol_data.json, parse mountinfo once.
	ScanMs float64 `json:"scan_ms,omitempty"`

	// In-tree update propagation.
	UpdSyncP50    float64 `json:"update_after_sync_p50_ms,omitempty"`
	UpdSyncP99    float64 `json:"update_after_sync_p99_ms,omitempty"`
	UpdNaturalP50 float64 `json:"update_natural_p50_ms,omitempty"`
	UpdNaturalP99 float64 `json:"update_natural_p99_ms,omitempty"`
	UpdNaturalMax float64 `json:"update_natural_max_ms,omitempty"`
	UpdCPU        float64 `json:"update_cpu_s,omitempty"`

	Calls     map[string]int64 `json:"driver_calls,omitempty"`
	Conns     int64            `json:"driver_conns,omitempty"`
	CallsUnm  map[string]int64 `json:"driver_calls_unmount,omitempty"`
	ConnsUnm  int64            `json:"driver_conns_unmount,omitempty"`
	APIReqs   map[string]int64 `json:"api_requests,omitempty"`
	Errors    int              `json:"errors"`
	FirstErr  string           `json:"first_error,omitempty"`
	StartedAt string           `json:"started_at,omitempty"`
	LoadAvg   string           `json:"loadavg,omitempty"`
	// CPU, in % of the machine, that everything outside the measurement used during it (set
	// by bench).
	NoisePct float64 `json:"noise_pct"`
}

// Emit appends the line to path, or prints it when path is empty.
func (r *Result) Emit(path string) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if path == "" {
		_, err = os.Stdout.Write(b)
		return err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(b)
	return err
}

// Pct returns the p-th percentile (nearest rank) of unsorted values.
func Pct(v []float64, p float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := append([]float64(nil), v...)
	sort.Float64s(s)
	i := int(math.Ceil(p/100*float64(len(s)))) - 1
	if i < 0 {
		i = 0
	}
	return s[i]
}

// Median is Pct(50) with the two middle values averaged.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := append([]float64(nil), v...)
	sort.Float64s(s)
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// Ms is a duration in milliseconds, with three decimals.
func Ms(d time.Duration) float64 { return math.Round(float64(d)/1e3) / 1e3 }

// Round keeps six decimals.
func Round(f float64) float64 { return math.Round(f*1e6) / 1e6 }

// ---- names ----

// VolID is the CSI volume handle of volume v of pod p.
func VolID(p, v int) string { return fmt.Sprintf("vol-%05d-%d", p, v) }

// PodUID is the UID of pod p.
func PodUID(p int) string { return fmt.Sprintf("5b0c3f0e-7c1a-4d0e-9a51-%012d", p) }

// ---- driver control ----
