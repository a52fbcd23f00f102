package localdriver

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The valid values of the one mutable parameter.
func TestMutableParameters(t *testing.T) {
	for _, c := range []struct {
		params map[string]string
		kind   string
		want   int
		bad    bool
	}{
		{nil, typeImage, 0, false},
		{nil, typeDirectory, 0, false},
		{map[string]string{"readAheadKB": "4"}, typeImage, 4, false},
		{map[string]string{"readAheadKB": "16384"}, typeImage, 16384, false},
		{map[string]string{"readAheadKB": "3"}, typeImage, 0, true},
		{map[string]string{"readAheadKB": "16385"}, typeImage, 0, true},
		{map[string]string{"readAheadKB": "much"}, typeImage, 0, true},
		{map[string]string{"readAheadKB": "64"}, typeDirectory, 0, true},
		{map[string]string{"readAheadKB": "64", "iops": "1"}, typeImage, 0, true},
	} {
		got, err := parseMutable(c.params, c.kind)
		if got != c.want || c.bad != (err != nil) {
			t.Errorf("%v of %s: %d, %v", c.params, c.kind, got, err)
		}
	}
}

// ControllerModifyVolume refuses what the driver does not have, and a refusal changes nothing.
func TestModifyRefuses(t *testing.T) {
	r := newRig(t)
	v := r.create(createReq("v", 16*mib, blockCap(multi)))
	modify := func(id string, params map[string]string) codes.Code {
		_, err := r.ControllerModifyVolume(t.Context(), &csi.ControllerModifyVolumeRequest{VolumeId: id, MutableParameters: params})
		return status.Code(err)
	}
	good := map[string]string{"readAheadKB": "64"}
	for _, c := range []struct {
		id     string
		params map[string]string
		want   codes.Code
	}{
		{v.id, good, codes.OK},
		{"absent", good, codes.NotFound},
		{"", good, codes.InvalidArgument},
		{v.id, nil, codes.InvalidArgument},
		{v.id, map[string]string{"readAheadKB": "much"}, codes.InvalidArgument},
	} {
		if got := modify(c.id, c.params); got != c.want {
			t.Errorf("%q %v: %v, want %v", c.id, c.params, got, c.want)
		}
	}
	if have, err := r.d.mustVolume(v.id); err != nil || have.ReadAheadKB != 64 {
		t.Errorf("%+v, %v", have, err)
	}
}
