package named

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VolumeAnnotation is an annotation of this source's claims and pods. Its value is the front end and the name of the
// volume that they stand for.
const VolumeAnnotation = "csi-volmgr.dev/volume"

// Identity names a volume as its front end does.
type Identity struct{ FrontEnd, Volume string }

// IdentityOf returns the volume that an object of this source stands for.
func IdentityOf(obj metav1.Object) Identity {
	front, volume, _ := strings.Cut(obj.GetAnnotations()[VolumeAnnotation], "/")
	return Identity{front, volume}
}

// annotation is the value of VolumeAnnotation.
func (n Identity) annotation() string { return n.FrontEnd + "/" + n.Volume }

// NomadPrefix is the prefix of the names of Nomad's volumes, before Nomad's id.
const NomadPrefix = "nomad-"

// Whose names the volume in the words of its front end.
func (n Identity) Whose() string {
	switch n.FrontEnd {
	case Docker:
		return "the volume " + n.Volume + " of Docker or podman"
	case Mount:
		return "the mount of type csi of " + n.Volume
	case Nomad:
		return "Nomad's volume " + strings.TrimPrefix(n.Volume, NomadPrefix)
	}
	return "the named volume " + n.Volume
}

// Ends returns the words, of the front end, that end the volume's use and remove it. places are where the host has it
// mounted, as far as that is known.
func (n Identity) Ends(places []string) string {
	switch n.FrontEnd {
	case Docker:
		return fmt.Sprintf("docker volume rm %s (with podman: podman volume rm %s)", n.Volume, n.Volume)
	case Mount:
		where := "DIRECTORY"
		if len(places) > 0 {
			where = strings.Join(places, " ")
		}
		return fmt.Sprintf("umount %s && %s", where, removal(n.Volume))
	case Nomad:
		return "nomad volume delete -type host " + strings.TrimPrefix(n.Volume, NomadPrefix)
	}
	return removal(n.Volume)
}

// EndsFor is Ends for a volume that the holders have. If only processes do, there is nothing to unmount.
func (n Identity) EndsFor(found []Holder) string {
	places := PlacesOf(found)
	if n.FrontEnd == Mount && len(found) > 0 && len(places) == 0 {
		return removal(n.Volume)
	}
	return n.Ends(places)
}

func removal(volume string) string { return "csi-volmgr volume remove " + volume }

// full returns the volume's name with its front end.
func (v Volume) full() Identity { return Identity{v.FrontEnd, v.Name} }

// Places returns where the host had the volume mounted when the kernel was last asked.
func (p *Provider) Places(n Identity) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.rows[n.Volume]; r != nil {
		return PlacesOf(r.look.found)
	}
	return nil
}

// PlacesOf returns where the host has the volume mounted, of all its holders.
func PlacesOf(holders []Holder) (places []string) {
	for _, h := range holders {
		if h.PID == 0 {
			places = append(places, h.Path)
		}
	}
	return places
}
