package journal

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Inspect names damaged values by bucket and key, Export shows them as they are stored, and
// Mend restores them from the spare copy if it has them.
//
// Faults: A184.
func TestAJournalIsInspectedExportedAndMended(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	b := openBolt(t, path)
	v := sample("v")
	commit(t, b, map[state.VolumeID]*state.Volume{"v": &v})
	must(t, b.CommitBucket(t.Context(), "claims", map[string][]byte{"default/a": []byte(`{"name":"pvc-a"}`)}))
	must(t, b.Close())
	if file, spare := Inspect(path); !file.Sound() || !spare.Sound() || file.Counts["volumes"] != 1 || file.Counts["kv/claims"] != 1 {
		t.Fatalf("%+v, %+v", file, spare)
	}
	data := bytes.ReplaceAll(read(t, path), []byte("pvc-a"), []byte("pvc-A"))
	write(t, path, bytes.ReplaceAll(data, []byte(`"sizeBytes":`), []byte(`"sizeBYTES":`)))
	file, spare := Inspect(path)
	if file.Sound() || file.Err != nil || !spare.Sound() || file.Unreadable["kv/claims/default/a"] == "" || file.Unreadable["volumes/v"] == "" {
		t.Fatalf("%+v, %+v", file, spare)
	}
	all, err := Export(path)
	must(t, err)
	i := slices.IndexFunc(all, func(e Entry) bool { return e.Bucket == "kv/claims" })
	if i < 0 || all[i].Key != "default/a" || all[i].Unreadable == "" || !bytes.Contains(all[i].Bytes, []byte("pvc-A")) {
		t.Errorf("%+v", all)
	}
	b = openBolt(t, path)
	mended, left, err := b.Mend(t.Context())
	if want := []string{"kv/claims/default/a", "volumes/v"}; err != nil || !slices.Equal(mended, want) || len(left) > 0 {
		t.Errorf("mended %v, left %v, %v", mended, left, err)
	}
	got, err := b.Load(t.Context())
	must(t, err)
	values, err := b.LoadBucket(t.Context(), "claims")
	must(t, err)
	if got.Volumes["v"].Stage.Phase != state.Entering || string(values.Sound["default/a"]) != `{"name":"pvc-a"}` {
		t.Errorf("%+v, %v", got.Volumes["v"].Stage, values)
	}
	must(t, b.Close())
	if file, _ := Inspect(path); !file.Sound() {
		t.Errorf("%+v", file)
	}
	must(t, os.Truncate(path, 100))
	if file, _ := Inspect(path); file.Err == nil || !strings.Contains(file.Err.Error(), "damaged") {
		t.Errorf("%+v", file)
	}
	if file, _ := Inspect(filepath.Join(t.TempDir(), "none")); file.Err == nil {
		t.Error("a file that is not there is sound")
	}
}

// afterCommits is a context that ends once the journal has begun some commits.
type afterCommits struct {
	context.Context
	left int
}

func (c *afterCommits) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// A repair that ends in its middle leaves no record of the spare copy without the note that records
// may be lost: that record may lack a mount that a pod uses.
func TestARepairThatIsCutOffIsSuspect(t *testing.T) {
	for commits := range 4 {
		path := filepath.Join(t.TempDir(), "state.db")
		b := openBolt(t, path)
		v := sample("v")
		commit(t, b, map[state.VolumeID]*state.Volume{"v": &v})
		must(t, b.Close())
		write(t, path, bytes.ReplaceAll(read(t, path), []byte(`"sizeBytes":`), []byte(`"sizeBYTES":`)))
		b = openBolt(t, path)
		mended, _, err := b.Mend(&afterCommits{t.Context(), commits})
		if (err == nil) != (len(mended) == 1) {
			t.Fatalf("%d commits: mended %v, %v", commits, mended, err)
		}
		must(t, b.Close())
		b = openBolt(t, path)
		got, err := b.Load(t.Context())
		must(t, err)
		if readable := len(got.Quarantined) == 0; readable && !got.Recovery.Lost() {
			t.Errorf("%d commits: the record is an older one, and the journal counts as whole", commits)
		}
	}
}
