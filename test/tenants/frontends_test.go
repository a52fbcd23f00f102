package tenants

import (
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/localdriver"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/named"
)

// asked is a volume that a program outside Kubernetes asks for.
type asked struct {
	name    string // nomad-evil if ""
	options map[string]string
	// says are the words that refuse it; "" if it gets storage of its own.
	says string
}

// nomads returns what an author of Nomad's namespace evil asks for. The authors of the other front ends' volumes are the
// operator: Docker's socket, root's podman and mount(8) are root's. It is by the way in which a volume reaches for what the bank has.
func nomads(b *bank) map[way]asked {
	pv := b.Do("", "get", "pv", b.volume, "-o", "jsonpath={.handle}")
	with := func(pairs ...string) map[string]string {
		options := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			options[pairs[i]] = pairs[i+1]
		}
		return options
	}
	class := with("class", "class", "size", "32Mi")
	return map[way]asked{
		byName:   {name: "nomad-ledger", options: class, says: "conflict"},
		byClaim:  {options: with("claim", "data", "namespace", "bank"), says: "--nomad-allow=evil/namespace=bank"},
		byVolume: {options: with("claim", "data"), says: "claim"},
		byHandle: {options: with("driver", localdriver.DefaultName, "handle", pv), says: "--nomad-allow=evil/driver=" + localdriver.DefaultName},
		byOwner:  {options: with("claim", "data", "namespace", "bank", "uid", "65534", "mode", "0777"), says: "--nomad-allow=evil/"},
		byPath:   {options: with("class", "class", "size", "32Mi", "subdir", "../../"+b.web), says: "subdir"},
		byNote:   {options: with("class", "class", "size", "32Mi", "attribute.handle", pv), says: "attribute"},
		bySource: {options: with("class", "class", "size", "32Mi", "snapshot", "bank/monday"), says: "snapshot"},
		byUID:    {options: with("class", "class", "size", "32Mi", "uid", "65534", "mode", "0777")},
		byLabel:  {options: with("class", "class", "size", "32Mi", "label", "tier"), says: "label"},
	}
}

// What an author of another of Nomad's namespaces asks for reaches nothing of the bank, which has a volume of Nomad, too:
// it neither takes nor removes that one.
//
// Attacks: C58.
func TestAttackOfNomadsAuthor(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	own, err := b.API.CreateNamed(t.Context(), server.NamedRequest{
		Name: "nomad-ledger", FrontEnd: named.Nomad, Namespace: "bank", Standing: true,
		Options: map[string]string{"class": "class", "size": "32Mi"},
	})
	if err != nil {
		t.Fatal(err)
	}
	path, err := b.API.MountNamed(t.Context(), named.Nomad, own.Name)
	if err != nil {
		t.Fatal(err)
	}
	file := path + "/f"
	b.put(file)
	b.files[file] = words
	cells := nomads(b)
	for _, w := range ways() {
		a, decided := cells[w]
		if !decided {
			t.Errorf("Nomad by %s: no decision", w)
			continue
		}
		name := "nomad-evil"
		if a.name != "" {
			name = a.name
		}
		_, err := b.API.CreateNamed(t.Context(), server.NamedRequest{Name: name, FrontEnd: named.Nomad, Namespace: "evil", Options: a.options})
		if (a.says == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), a.says) {
			t.Errorf("Nomad by %s: %v, want %q", w, err, a.says)
		}
		b.judge("Nomad by " + string(w))
		if err == nil {
			if _, err := b.API.RemoveNamed(t.Context(), server.NamedRemoval{FrontEnd: named.Nomad, Namespace: "evil", Name: name}); err != nil {
				t.Errorf("Nomad by %s: its own volume stays: %v", w, err)
			}
		}
	}
	if _, err := b.API.RemoveNamed(t.Context(), server.NamedRemoval{FrontEnd: named.Nomad, Namespace: "evil", Name: own.Name}); err == nil {
		t.Error("the neighbour removes the bank's volume")
	}
	b.judge("in the end")
}
