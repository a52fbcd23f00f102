package csiclient

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Usage is a volume's usage of bytes or inodes. A field is 0 if the driver does not
// report it.
type Usage struct {
	Total     int64 `json:"total,omitempty"`
	Used      int64 `json:"used,omitempty"`
	Available int64 `json:"available,omitempty"`
}

// Stats holds a driver's numbers about a published volume.
type Stats struct {
	Bytes  Usage `json:"bytes,omitzero"`
	Inodes Usage `json:"inodes,omitzero"`
	// Abnormal and Condition are the volume's condition as reported by drivers before CSI
	// 1.13; false and "" for others.
	Abnormal  bool   `json:"abnormal,omitempty"`
	Condition string `json:"condition,omitempty"`
}

// Stats asks how full the volume is at the mount of pod (CSI 1.13, NodeGetVolumeStats).
// Only drivers with Info.Stats have the call.
func (d *Driver) Stats(ctx context.Context, v state.Volume, pod state.PodUID) (Stats, error) {
	if !d.Info().Stats {
		return Stats{}, lacks(nodeStats, "GET_VOLUME_STATS")
	}
	m, err := mountOf(nodeStats, v, pod)
	if err != nil {
		return Stats{}, err
	}
	req, err := statsRequest(v, m.MountSpec)
	if err != nil {
		return Stats{}, refused(nodeStats, err)
	}
	ctx, cancel := context.WithTimeout(about(ctx, v), d.deadlines.Stats)
	defer cancel()
	r, err := d.node.NodeGetVolumeStats(ctx, req)
	if err != nil {
		return Stats{}, CallError(nodeStats, err)
	}
	return readStats(v, r), nil
}

// readStats returns the plausible numbers of an answer. It ignores unknown units and
// negative numbers. For a block volume it ignores a total smaller than the volume,
// because some drivers answer with the statfs of /dev.
func readStats(v state.Volume, r *csi.NodeGetVolumeStatsResponse) Stats {
	var s Stats
	for _, u := range r.GetUsage() {
		usage := Usage{Total: u.GetTotal(), Used: u.GetUsed(), Available: u.GetAvailable()}
		if min(usage.Total, usage.Used, usage.Available) < 0 {
			continue
		}
		switch u.GetUnit() {
		case csi.VolumeUsage_BYTES:
			s.Bytes = usage
		case csi.VolumeUsage_INODES:
			s.Inodes = usage
		}
	}
	if v.Spec.Mode == state.Block {
		s.Inodes = Usage{}
		if v.SizeBytes == 0 || s.Bytes.Total < v.SizeBytes {
			s.Bytes = Usage{}
		}
	}
	s.Abnormal, s.Condition = oldCondition(r.ProtoReflect().GetUnknown())
	return s
}

// oldCondition reads volume_condition, which CSI 1.13 removed. It is field 2 of the
// answer, a message with fields 1 abnormal (bool) and 2 message (string).
func oldCondition(unknown []byte) (abnormal bool, message string) {
	condition := wireFields(unknown)[2]
	fields := wireFields(condition.bytes)
	return fields[1].varint != 0, clipped(string(fields[2].bytes), maxMessage)
}

type wireValue struct {
	varint uint64
	bytes  []byte
}

// wireFields returns the varint and bytes fields of a message. The last value of a
// repeated field wins. If b is malformed, it returns the fields before the fault.
func wireFields(b []byte) map[protowire.Number]wireValue {
	fields := map[protowire.Number]wireValue{}
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fields
		}
		b = b[n:]
		var v wireValue
		switch typ {
		case protowire.VarintType:
			v.varint, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			v.bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return fields
		}
		fields[num] = v
		b = b[n:]
	}
	return fields
}
