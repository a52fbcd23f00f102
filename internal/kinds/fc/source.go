package fc

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/disk"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// ErrSource means that a volume's source names no disk.
var ErrSource = errors.New("invalid fc source")

// unit is a parsed source: a logical unit at ports, or disks by name.
type unit struct {
	ports []string // world wide port names, 16 hexadecimal digits each
	lun   int32
	wwids []string // as the kernel writes them
	want  disk.Want
}

func (u unit) String() string {
	if len(u.ports) > 0 {
		return fmt.Sprintf("lun %d of %s", u.lun, strings.Join(u.ports, ","))
	}
	return strings.Join(u.wwids, ",")
}

// same reports whether two units may be the same disk.
func (u unit) same(o unit) bool {
	shares := func(a, b []string) bool {
		return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
	}
	return u.lun == o.lun && shares(u.ports, o.ports) || shares(u.wwids, o.wwids)
}

// parse reads the source in a volume's spec.
func parse(spec state.Spec) (unit, error) {
	var src corev1.FCVolumeSource
	if err := json.Unmarshal(spec.Config, &src); err != nil {
		return unit{}, fmt.Errorf("fc: %w: %w", ErrSource, err)
	}
	u := unit{want: disk.Want{FSType: src.FSType, ReadOnly: src.ReadOnly, Flags: spec.MountOptions()}}
	if u.want.FSType == "" {
		u.want.FSType = disk.DefaultFS
	}
	switch {
	case len(src.TargetWWNs) > 0 && len(src.WWIDs) > 0:
		return unit{}, fmt.Errorf("fc.wwids: found together with targetWWNs, want only one of them: %w", ErrSource)
	case len(src.TargetWWNs) > 0 && src.Lun == nil:
		return unit{}, fmt.Errorf("fc.lun: found none, want the number of the logical unit at targetWWNs: %w", ErrSource)
	case len(src.TargetWWNs) == 0 && len(src.WWIDs) == 0:
		return unit{}, fmt.Errorf("fc: found neither targetWWNs nor wwids, want one of them: %w", ErrSource)
	}
	for i, name := range src.TargetWWNs {
		port := strings.ToLower(strings.TrimPrefix(strings.ReplaceAll(name, ":", ""), "0x"))
		if b, err := hex.DecodeString(port); err != nil || len(b) != 8 {
			return unit{}, fmt.Errorf("fc.targetWWNs[%d]: found %.40q, want 16 hexadecimal digits: %w", i, name, ErrSource)
		}
		u.ports = append(u.ports, port)
	}
	if src.Lun != nil {
		u.lun = *src.Lun
		if u.lun < 0 || u.lun > 255 { // Kubernetes' validation of fc.lun
			return unit{}, fmt.Errorf("fc.lun: found %d, want 0 to 255: %w", u.lun, ErrSource)
		}
	}
	for i, name := range src.WWIDs {
		wwid, ok := kernelName(name)
		if !ok {
			return unit{}, fmt.Errorf("fc.wwids[%d]: found %.80q, want what scsi_id prints, as "+
				"3600508b400105e210000900000490000: %w", i, name, ErrSource)
		}
		u.wwids = append(u.wwids, wwid)
	}
	return u, nil
}

// kernelName converts the output of scsi_id to the kernel's WWID. scsi_id puts a digit
// for the type in front: 2 is EUI-64, 3 is NAA.
func kernelName(scsiID string) (string, bool) {
	name := strings.ToLower(strings.ReplaceAll(scsiID, " ", "_"))
	if len(name) < 17 || len(name) > 33 {
		return "", false
	}
	if strings.Trim(name, "0123456789abcdef") != "" {
		return "", false
	}
	switch name[0] {
	case '2':
		return "eui." + name[1:], true
	case '3':
		return "naa." + name[1:], true
	}
	return "", false
}
