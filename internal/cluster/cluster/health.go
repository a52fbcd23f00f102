package cluster

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/report"
	"github.com/csi-volmgr/csi-volmgr/internal/host/clip"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/stats"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Health writes events about a volume's health, and has Pods and the CSINode show it. On nil it does
// nothing.
func (c *Cluster) Health(s stats.Status) {
	if c != nil {
		c.events.Health(s)
		c.Report.HealthChanged()
	}
}

// health returns the health of drivers' volumes and storage in the API's form. It leaves out what was not
// judged since the daemon began.
func (c *Cluster) health() report.Health {
	h := report.Health{Storage: map[state.DriverName][]storagev1.StorageHealthCondition{}}
	at := map[types.UID]int{} // index in h.Pods
	for _, s := range c.cfg.Stats() {
		if _, builtin := kind.Of(s.Driver); builtin || s.Health == "" {
			continue
		}
		if stats.IsStorageKey(s.Key) {
			h.Storage[s.Driver] = storageConditions(s.Conditions)
			continue
		}
		v, _ := c.cfg.Loop.Volume(state.VolumeID(s.Key))
		for _, uid := range v.Wanted {
			pod, names := c.podOf(uid, v.Volume.ID)
			if pod == nil {
				continue
			}
			i, known := at[pod.UID]
			if !known {
				i, at[pod.UID] = len(h.Pods), len(h.Pods)
				h.Pods = append(h.Pods, report.PodHealth{Pod: pod, Volumes: map[string][]corev1.VolumeHealthCondition{}})
			}
			for _, name := range names {
				h.Pods[i].Volumes[name] = volumeConditions(s.Conditions)
			}
		}
	}
	return h
}

// podOf returns a pod of the API server and its names for the volume; nil for a pod of another source.
func (c *Cluster) podOf(uid state.PodUID, id state.VolumeID) (*corev1.Pod, []string) {
	is, _ := c.cfg.Loop.Pod(uid)
	key := source.Key{Kind: resolve.KindPod, Namespace: is.Pod.Namespace, Name: is.Pod.Name}
	pod, ok := c.cfg.Catalog.Get(key).(*corev1.Pod)
	if !ok || pod.UID != types.UID(uid) || c.cfg.Catalog.Provider(key) != source.Kube {
		return nil, nil
	}
	for _, v := range is.Volumes {
		if v.ID == id {
			return pod, v.Names
		}
	}
	return nil, nil
}

// volumeConditions converts a volume's conditions to the API's, which has three statuses. Any other
// status, from a later CSI or missing as before CSI 1.13, becomes Degraded.
func volumeConditions(all []stats.Condition) (out []corev1.VolumeHealthCondition) {
	for _, c := range all {
		status := corev1.VolumeHealthStatusType(c.Word())
		switch {
		case c.Kernel:
			status = corev1.VolumeHealthInaccessible
		case status != corev1.VolumeHealthInaccessible && status != corev1.VolumeHealthDataLoss:
			status = corev1.VolumeHealthDegraded
		}
		text := clip.Text(c.Message, maxMessage, "")
		out = append(out, corev1.VolumeHealthCondition{Status: status, Reason: reason(c), Message: text})
	}
	return out
}

func storageConditions(all []stats.Condition) (out []storagev1.StorageHealthCondition) {
	for _, c := range all {
		text := clip.Text(c.Message, maxMessage, "")
		to := storagev1.StorageHealthCondition{Status: storagev1.StorageDegraded, Reason: reason(c), Message: text}
		if c.Word() == string(storagev1.StorageUnreachable) {
			to.Status = storagev1.StorageUnreachable
		}
		if mode := corev1.PersistentVolumeAccessMode(c.AccessMode); mode != "" {
			to.AccessMode = &mode
		}
		if mode := corev1.PersistentVolumeMode(c.VolumeMode); mode != "" {
			to.VolumeMode = &mode
		}
		out = append(out, to)
	}
	return out
}

// Bounds of the API, in bytes.
const (
	maxReason  = 256
	maxMessage = 1024
)

// reason returns a condition's reason in the form that the API accepts: a letter, then letters, digits
// and _. A reason in another form would keep all of a Pod's health from being written.
func reason(c stats.Condition) string {
	letter := func(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }
	plain := strings.Map(func(r rune) rune {
		if letter(r) || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return -1
	}, c.Reason)
	plain = strings.TrimLeftFunc(plain, func(r rune) bool { return !letter(r) })
	of := "Unspecified"
	if c.Kernel {
		of = "MountNotServed"
	}
	return cmp.Or(plain[:min(len(plain), maxReason)], of)
}
