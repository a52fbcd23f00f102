package csiclient

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Usage is how much of something a volume has. A field is 0 where the driver
// does not say.
type Usage struct {
	Total     int64 `json:"total,omitempty"`
	Used      int64 `json:"used,omitempty"`
	Available int64 `json:"available,omitempty"`
}

// Stats is what a driver says of one volume in use.
type Stats struct {
	Bytes  Usage `json:"bytes,omitzero"`
	Inodes Usage `json:"inodes,omitzero"`
	// Abnormal and Condition are the volume's condition as drivers before CSI
	// 1.13 told it; false and "" for others.
	Abnormal  bool   `json:"abnormal,omitempty"`
	Condition string `json:"condition,omitempty"`
}

// Stats asks how full the volume is that pod has mounted (CSI 1.13,
// NodeGetVolumeStats). Only drivers with Info.Stats have the call.
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

// readStats takes what is sane of an answer: no unit that it does not know, no
// negative number; and of a block volume nothing smaller than the volume, for
// drivers were seen to answer with the statfs of /dev.
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

// oldCondition reads volume_condition, which CSI 1.13 removed: field 2 of the
// answer, a message of 1 abnormal (bool) and 2 message (string).
func oldCondition(unknown []byte) (abnormal bool, message string) {
	condition := wireFields(unknown)[2]
	fields := wireFields(condition.bytes)
	return fields[1].varint != 0, clipped(string(fields[2].bytes), maxMessage)
}

type wireValue struct {
	varint uint64
	bytes  []byte
}

// wireFields reads the varint and bytes fields of a message; of one that
// repeats, the last counts. Where b is malformed, what came before stands.
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
