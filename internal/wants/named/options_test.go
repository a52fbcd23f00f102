package named

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestOptionsThatAreWrongAreNamed(t *testing.T) {
	for name, tc := range map[string]struct {
		given map[string]string
		words []string
	}{
		"unknown":                {map[string]string{"colour": "red"}, []string{"option colour is not known", "accessMode", "attribute.KEY"}},
		"case":                   {map[string]string{"Size": "1Gi"}, []string{"option Size is not known"}},
		"size":                   {map[string]string{"size": "1GB!"}, []string{"option size", `"1GB!"`, "1Gi"}},
		"size of nothing":        {map[string]string{"size": "0"}, []string{"option size"}},
		"access mode":            {map[string]string{"accessMode": "rw"}, []string{"option accessMode", "ReadWriteOnce"}},
		"reclaim":                {map[string]string{"reclaim": "Recycle"}, []string{"option reclaim", "Retain or Delete"}},
		"uid":                    {map[string]string{"uid": "root"}, []string{"option uid", "number"}},
		"negative gid":           {map[string]string{"gid": "-1"}, []string{"option gid"}},
		"mode":                   {map[string]string{"mode": "0999"}, []string{"option mode", "octal"}},
		"mode too large":         {map[string]string{"mode": "17777"}, []string{"option mode"}},
		"subdir above":           {map[string]string{"subdir": "a/../../b"}, []string{"option subdir"}},
		"subdir absolute":        {map[string]string{"subdir": "/a"}, []string{"option subdir"}},
		"empty":                  {map[string]string{"class": ""}, []string{"option class"}},
		"claim and size":         {map[string]string{"claim": "c", "size": "1Gi"}, []string{"claim and size contradict"}},
		"claim and driver":       {map[string]string{"claim": "c", "driver": "d", "handle": "h"}, []string{"claim and driver contradict"}},
		"driver without handle":  {map[string]string{"driver": "d"}, []string{"option handle is missing"}},
		"handle without driver":  {map[string]string{"handle": "h"}, []string{"option driver is missing"}},
		"driver and class":       {map[string]string{"driver": "d", "handle": "h", "class": "c"}, []string{"driver and class contradict"}},
		"driver and Delete":      {map[string]string{"driver": "d", "handle": "h", "reclaim": "Delete"}, []string{"reclaim=Delete"}},
		"attributes alone":       {map[string]string{"attribute.x": "y"}, []string{"need options driver and handle"}},
		"attribute without name": {map[string]string{"attribute.": "y", "driver": "d", "handle": "h"}, []string{"attribute.KEY"}},
		"two at once":            {map[string]string{"uid": "x", "size": "y"}, []string{"option uid", "option size"}},
	} {
		_, err := parse(placeOf("db"), tc.given)
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, w := range append(tc.words, "volume db") {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q lacks %q", name, err, w)
			}
		}
	}
}

func TestWhatOptionsMean(t *testing.T) {
	o, err := parse(placeOf("shop_db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if o.Namespace != "default" || o.Claim != "shop-db" || o.Subdir != defaultSubdir || o.SizeBytes != defaultSize ||
		o.Delete || o.Existing || o.AccessMode != "ReadWriteOnce" {
		t.Errorf("without options: %+v", o)
	}
	o, err = parse(placeOf("backups/data"), map[string]string{
		"size": "5Gi", "accessMode": "RWX", "subdir": ".", "uid": "999", "gid": "0", "mode": "0700", "reclaim": "Delete",
		"mountOptions": "noatime,nodev",
	})
	if err != nil {
		t.Fatal(err)
	}
	if o.Namespace != "backups" || o.Claim != "data" || o.Subdir != "" || o.SizeBytes != 5<<30 || !o.Delete ||
		o.AccessMode != "ReadWriteMany" || *o.Owner.UID != 999 || *o.Owner.GID != 0 || *o.Owner.Mode != 0o700 ||
		len(o.MountOptions) != 2 {
		t.Errorf("with options: %+v", o)
	}
	if o, err = parse(placeOf("x"), map[string]string{"claim": "data", "namespace": "shop"}); err != nil || !o.Existing ||
		o.Subdir != "" || o.Namespace != "shop" {
		t.Errorf("an existing claim: %+v, %v", o, err)
	}
}

// podman passes the annotations of kube play, User= of quadlet and uid= within o as options of its own names, some twice.
func TestOptionsAsPodmanPassesThem(t *testing.T) {
	o, err := parse(placeOf("db"), map[string]string{"UID": "999", "GID": "998", "SIZE": "2G", "o": "uid=999,size=2G,class=fast,mountOption=noatime,mountOption=nodev,"})
	if err != nil {
		t.Fatal(err)
	}
	if *o.Owner.UID != 999 || *o.Owner.GID != 998 || o.SizeBytes != 2e9 || o.Class != "fast" || !slices.Equal(o.MountOptions, []string{"noatime", "nodev"}) {
		t.Errorf("got %+v", o)
	}
	for words, given := range map[string]map[string]string{
		`option uid: found "1" and "2"`: {"UID": "1", "o": "uid=2"},
		"mountOption=ro":                {"o": "ro"},
		"option colour is not known":    {"o": "colour=red"},
		"want a value":                  {"o": "class="},
	} {
		if _, err := parse(placeOf("db"), given); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), words) {
			t.Errorf("%v: %v, want %q", given, err, words)
		}
	}
}

// The catalog accepts the objects of every kind of volume.
func TestObjectsOfAVolumePassTheCheck(t *testing.T) {
	for name, given := range map[string]map[string]string{
		"made":     {"class": "fast", "fsType": "xfs", "mountOptions": "noatime"},
		"existing": {"claim": "data"},
		"static":   {"driver": "d.example.com", "handle": "vol/1", "attribute.a": "b", "fsType": "ext4"},
	} {
		o, err := parse(placeOf("shop_db"), given)
		if err != nil {
			t.Fatal(err)
		}
		v := Volume{Name: "shop_db", FrontEnd: Docker, Options: o}
		for _, obj := range append(v.claimObjects(), runtime.Object(v.pod())) {
			if faults := resolve.Check(obj); len(faults) > 0 {
				t.Errorf("%s: %v", name, faults)
			}
		}
		if want := map[string]int{"made": 1, "existing": 0, "static": 2}[name]; len(v.claimObjects()) != want {
			t.Errorf("%s: %d objects, want %d", name, len(v.claimObjects()), want)
		}
	}
}
