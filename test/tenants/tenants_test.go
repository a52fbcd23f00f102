package tenants

import (
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/localdriver"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/manifest"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
)

var seed = flag.Uint64("seed", 0, "order the attacks by this seed; 0 chooses one, which is printed")

// Each kind that a manifest may contain has a row, and each row of a namespace's kind has a cell for each way. What a cell
// calls impossible, the kind has no field for.
func TestEachCellHasADecision(t *testing.T) {
	rows := attacks(new(bank))
	for _, kind := range manifest.KindNames() {
		cells, listed := rows[kind]
		switch administrator := slices.Contains(administrators(), kind); {
		case kind == "List":
		case administrator == resolve.Namespaced(kind) || administrator == listed:
			t.Errorf("%s: namespaced %v, administrator's %v, row %v", kind, resolve.Namespaced(kind), administrator, listed)
		}
		for _, w := range ways() {
			cell, decided := cells[w]
			if listed && (!decided || cell.lacks != (len(cell.docs) == 0)) {
				t.Errorf("%s by %s: no decision", kind, w)
			}
			if !cell.lacks {
				continue
			}
			if fields := fieldsOf(kind, w); len(fields) > 0 {
				t.Errorf("%s by %s: it has fields %v", kind, w, fields)
			}
		}
	}
	for kind := range rows {
		if !slices.Contains(manifest.KindNames(), kind) {
			t.Errorf("%s is no kind of a manifest", kind)
		}
	}
}

// fieldsOf returns the fields of a kind's spec that name things in a way.
func fieldsOf(kind string, w way) (found []string) {
	names := map[way][]string{
		byHandle: {"handle", "contentname"}, byClaim: {"claimname", "persistentvolumeclaim"},
		byVolume: {"volumename", "contentname"}, byPath: {"hostpath", "subpath", "devicepath"}, bySource: {"datasource", "datasourceref", "projected"},
	}[w]
	types := map[string]any{
		resolve.KindPod: corev1.PodSpec{}, resolve.KindClaim: corev1.PersistentVolumeClaimSpec{},
		resolve.KindSnapshot: snapshotv1.VolumeSnapshotSpec{}, resolve.KindGroupSnapshot: groupv1.VolumeGroupSnapshotSpec{},
		resolve.KindSecret: corev1.Secret{}, resolve.KindConfigMap: corev1.ConfigMap{}, resolve.KindEndpoints: resolve.Endpoints{},
	}
	seen := map[reflect.Type]bool{}
	var walk func(of reflect.Type)
	walk = func(of reflect.Type) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || seen[of] || strings.HasSuffix(of.PkgPath(), "/meta/v1") {
			return
		}
		seen[of] = true
		for field := range of.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(strings.ToLower(name), n) }) {
				found = append(found, name)
			}
			walk(field.Type)
		}
	}
	walk(reflect.TypeOf(types[kind]))
	return found
}

// tried is an attack with its place in the table.
type tried struct {
	name string
	attack
}

// shuffled returns the attacks in the order of a seed.
func (b *bank) shuffled() ([]tried, *rand.Rand) {
	b.T.Helper()
	from := *seed
	if from == 0 {
		from = rand.Uint64()
	}
	b.T.Logf("-seed=%d", from)
	random := rand.New(rand.NewPCG(from, 1))
	var all []tried
	for kind, cells := range attacks(b) {
		for w, a := range cells {
			if !a.lacks {
				all = append(all, tried{kind + " by " + string(w), a})
			}
		}
	}
	slices.SortFunc(all, func(x, y tried) int { return strings.Compare(x.name, y.name) })
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all, random
}

// What the neighbour applies reaches nothing of the bank, in any order, before and after a restart, while it stands and when
// it goes; and the bank's mounts are never touched.
//
// Attacks: C56.
func TestAttackObjectsOfANeighbour(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.judge("at first")
	all, random := b.shuffled()
	restart := random.IntN(len(all))
	for i, a := range all {
		b.try(a.name, a.attack, i == restart)
		if t.Failed() {
			t.Fatalf("after %s, number %d of the seed's", a.name, i)
		}
	}
}

// The neighbour has come first and waits for the bank to go for a moment: it gets nothing then, and the bank has
// everything when it comes back.
//
// Attacks: C57.
func TestAttackOfANeighbourWhoWaits(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	all, _ := b.shuffled()
	for _, a := range all {
		b.CLI(strings.Join(a.docs, "\n---\n"), "apply", "-f", "-") // some contradict those before
	}
	b.judge("beside all attacks")
	web := b.ofBank()[len(b.ofBank())-1]
	for _, restart := range []bool{false, true} {
		b.Do(web, "delete", "-f", "-")
		b.Eventually("the bank's pod to be gone", func() bool { return len(b.ofTheBank()) == 1 }) // Docker's volume
		if restart {
			b.daemon.Kill()
			b.start()
			b.DriverUp(localdriver.DefaultName)
		}
		for _, a := range all {
			b.CLI(strings.Join(a.docs, "\n---\n"), "apply", "-f", "-")
		}
		b.neighbours("while the bank is away")
		said := b.CLI(web, "apply", "-f", "-")
		if !strings.Contains(said.Stderr, "which follows from the name, is what pod evil/uid says and has; delete that pod") {
			t.Errorf("the bank comes back while evil/uid has its uid: %d %s", said.Code, said.Stderr)
		}
		b.Do("", "delete", "pod", "uid", "-n", "evil")
		b.Eventually("the bank to get its uid", func() bool { return b.CLI(web, "apply", "-f", "-").Code == 0 })
		b.ready("bank", "web")
		for _, m := range b.podMounts("bank", "web") {
			file, want := filepath.Join(m.HostPath, "f"), words
			if text, err := os.ReadFile(file); m.Name != "scratch" && (err != nil || string(text) != want) {
				t.Errorf("the bank comes back, and %s has %q, %v", file, text, err)
			}
		}
		b.neighbours("when the bank is back")
	}
}

// try applies an attack, restarts the daemon if so, and takes it back. The judge looks each time.
func (b *bank) try(name string, a attack, restart bool) {
	b.T.Helper()
	manifest := strings.Join(a.docs, "\n---\n")
	said := b.CLI(manifest, "apply", "-f", "-")
	settled := func() {
		b.T.Helper()
		for _, pod := range a.pods {
			b.ready("evil", pod)
		}
		if a.explain != "" {
			args := append([]string{"explain", "-n", "evil"}, strings.Fields(a.explain)...)
			last := ""
			defer func() {
				if b.T.Failed() {
					b.T.Logf("explain said:\n%s", last)
				}
			}()
			b.Eventually(name+": explain to say "+a.says, func() bool {
				last = b.CLI("", args...).Stdout
				return strings.Contains(last, a.says)
			})
		}
	}
	switch refused := a.says != "" && a.explain == ""; {
	case refused && (said.Code == 0 || !strings.Contains(said.Stderr, a.says)):
		b.T.Errorf("%s: apply answers %d %s%s, want %q", name, said.Code, said.Stdout, said.Stderr, a.says)
	case refused:
		b.judge(name)
		return
	case said.Code != 0:
		b.T.Errorf("%s: apply answers %d %s", name, said.Code, said.Stderr)
		return
	}
	settled()
	b.judge(name)
	if restart {
		b.daemon.Kill()
		b.start()
		settled()
		b.judge(name + ", after a restart")
	}
	b.withdraw(name, manifest)
	b.judge(name + ", when it has gone")
}

// withdraw takes back what the neighbour has applied, and ends it with its data.
func (b *bank) withdraw(name, manifest string) {
	b.T.Helper()
	b.Do(manifest, "delete", "-f", "-")
	for _, kind := range []string{"groupsnapshot", "snapshot", "pvc"} {
		b.Eventually(name+": each "+kind+" to go", func() bool {
			left := strings.Fields(b.Do("", "get", kind, "-n", "evil", "-o", "jsonpath={.items[*].name}"))
			for _, one := range left {
				b.CLI("", "delete", kind, one, "-n", "evil")
			}
			return len(left) == 0
		})
	}
}
