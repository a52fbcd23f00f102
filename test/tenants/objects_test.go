package tenants

import (
	"fmt"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/localdriver"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
)

// way is how an object of the neighbour reaches for what the bank has.
type way string

const (
	byName   way = "name"     // metadata.name, or a pod's name for a secret
	byUID    way = "uid"      // metadata.uid, from which names at the driver follow
	byLabel  way = "label"    // labels that the bank's have, or a selector of them
	byOwner  way = "owner"    // an ownerReference to the bank's pod
	byNote   way = "note"     // an annotation
	byHandle way = "handle"   // the driver's name for storage
	byClaim  way = "claim"    // the name of a claim, in a source or as a pod's volume
	byVolume way = "volume"   // the name of a PersistentVolume, or of a content
	byPath   way = "path"     // a path of the host
	bySource way = "contents" // what a volume is to be made of
)

func ways() []way {
	return []way{byName, byUID, byLabel, byOwner, byNote, byHandle, byClaim, byVolume, byPath, bySource}
}

// attack is what the neighbour applies.
type attack struct {
	docs []string
	// says are the words that refuse it: those of apply, or of explain KIND NAME; "" if it gets storage of its own, or
	// has no storage.
	says    string
	explain string
	// pods get their volumes, though with nothing of the bank.
	pods []string
	// lacks: objects of the kind have no field for this way.
	lacks bool
}

// administrators are the kinds without a namespace: who writes them decides about every namespace.
func administrators() []string {
	return []string{
		resolve.KindVolume, resolve.KindClass, resolve.KindAttributesClass, resolve.KindCSIDriver, resolve.KindVolumeAttachment,
		resolve.KindTrustBundle, resolve.KindSnapshotClass, resolve.KindSnapshotContent, resolve.KindGroupSnapshotClass,
		resolve.KindGroupSnapshotContent,
	}
}

// pod returns a pod of the neighbour with a volume v of the source. more goes into its metadata.
func pod(name, more, source string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: evil%s}, spec: {containers: [{name: c, image: x,
  volumeMounts: [{name: v, mountPath: /v}]}], volumes: [{name: v, %s}]}}`, name, more, source)
}

// claim returns a claim of the neighbour. more goes into its metadata, and spec into its spec.
func claim(name, more, spec string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: %s, namespace: evil%s}, spec: {
  accessModes: [ReadWriteOnce], resources: {requests: {storage: 32Mi}}, %s}}`, name, more, spec)
}

func using(claim string) string { return "persistentVolumeClaim: {claimName: " + claim + "}" }

// snapshot returns a snapshot, or a group of them, of the neighbour.
func snapshot(kind, name, more, source string) string {
	group := resolve.SnapshotGroup
	if kind == resolve.KindGroupSnapshot {
		group = resolve.GroupSnapshotGroup
	}
	return fmt.Sprintf(`{apiVersion: %s/v1, kind: %s, metadata: {name: %s, namespace: evil%s}, spec: {source: {%s}}}`, group, kind,
		name, more, source)
}

// plain returns an object of the neighbour without a spec, and a pod that has it.
func plain(kind, name, more string) []string {
	source := map[string]string{
		resolve.KindSecret: "secret: {secretName: " + name + "}", resolve.KindConfigMap: "configMap: {name: " + name + "}",
	}[kind]
	data := map[string]string{
		resolve.KindSecret: "stringData: {g: mine}", resolve.KindConfigMap: "data: {g: mine}", resolve.KindEndpoints: "subsets: []",
	}[kind]
	docs := []string{fmt.Sprintf("{apiVersion: v1, kind: %s, metadata: {name: %s, namespace: evil%s}, %s}", kind, name, more, data)}
	if source != "" {
		docs = append(docs, pod("reader", "", source))
	}
	return docs
}

// attacks returns what the neighbour of a bank tries, by kind and way.
func attacks(b *bank) map[string]map[way]attack {
	const spec = "storageClassName: class"
	owner := ", ownerReferences: [{apiVersion: v1, kind: Pod, name: web, uid: " + b.web + ", controller: true}]"
	label := ", labels: {app: web, tier: gold}"
	uid := ", uid: " + b.claimUID
	note := ", annotations: {csi-volmgr.dev/snapshot-handle: " + b.handle + ", csi-volmgr.dev/volume: " + b.volume +
		", volume.kubernetes.io/selected-node: " + b.handle + ", csi-volmgr.dev/front-end: docker}"
	own := func(more string) attack {
		return attack{docs: []string{claim("data", more, spec), pod("data", "", using("data"))}, pods: []string{"data"}}
	}
	waits := func(says, explain string, docs ...string) attack {
		return attack{docs: docs, says: says, explain: explain}
	}
	claims := func(says, name, more, spec string) attack {
		return waits(says, "pvc "+name, claim(name, more, spec), pod(name, "", using(name)))
	}
	read := func(kind, name, more string) attack {
		a := attack{docs: plain(kind, name, more)}
		if len(a.docs) > 1 {
			a.pods = []string{"reader"}
		}
		return a
	}
	cut := func(kind, more, source, says string) attack {
		word := strings.TrimPrefix(strings.ToLower(kind), "volume")
		return waits(says, word+" monday", snapshot(kind, "monday", more, source))
	}
	lacks := attack{lacks: true}
	ofClaim, ofLabels := "persistentVolumeClaimName: data", "selector: {matchLabels: {app: web}}"
	empty := "emptyDir: {}"
	all := map[string]map[way]attack{
		resolve.KindPod: {
			byName:  {docs: []string{pod("web", "", empty), pod("docker.shop", "", empty)}, pods: []string{"web", "docker.shop"}},
			byUID:   waits("want one of its own", "", pod("uid", ", uid: "+b.web, empty)),
			byLabel: {docs: []string{pod("label", label, empty)}, pods: []string{"label"}},
			byOwner: {docs: []string{pod("owner", owner, empty)}, pods: []string{"owner"}},
			byNote:  {docs: []string{pod("note", note, empty)}, pods: []string{"note"}},
			byHandle: {docs: []string{pod("handle", "", fmt.Sprintf(`csi: {driver: %s, volumeAttributes: {size: 16Mi, handle: %q,
  volumeHandle: %q}}`, localdriver.DefaultName, b.handle, b.volume))}, says: "unknown parameter", explain: "pod handle"},
			byClaim:  waits("claim evil/data: not found", "pod claim", pod("claim", "", using("data"))),
			byVolume: waits("claim evil/"+b.volume+": not found", "pod volume", pod("volume", "", using(b.volume))),
			byPath:   waits("--host-path-allow", "pod path", pod("path", "", "hostPath: {path: "+b.path+"}")),
			bySource: waits("secret evil/keys: not found", "pod source", pod("source", "", "projected: {sources: [{secret: {name: keys}}]}")),
		},
		resolve.KindClaim: {
			byName:  own(""),
			byUID:   own(uid),
			byLabel: claims("disk: it is of claim bank/logs", "label", label, `storageClassName: "", selector: {matchLabels: {tier: gold}}`),
			byOwner: own(owner),
			byNote: claims("--snapshot-handle-allow", "note", note, spec+`, dataSource: {
  apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: monday}`),
			byHandle: lacks,
			byClaim: claims("its source, claim evil/data,", "of", "", spec+`, dataSource: {
  kind: PersistentVolumeClaim, name: data}`),
			byVolume: waits("claim bank/logs has it", "pod disk", claim("disk", "", `storageClassName: "", volumeName: disk`),
				pod("disk", "", using("disk"))),
			byPath: lacks,
			bySource: claims("is in namespace bank", "contents", "", spec+`, dataSourceRef: {
  apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: monday, namespace: bank}`),
		},
		resolve.KindSnapshot: {
			byName:   cut(resolve.KindSnapshot, "", ofClaim, "there is no such claim in namespace evil"),
			byUID:    cut(resolve.KindSnapshot, uid, ofClaim, "there is no such claim in namespace evil"),
			byLabel:  cut(resolve.KindSnapshot, label, ofClaim, "there is no such claim in namespace evil"),
			byOwner:  cut(resolve.KindSnapshot, owner, ofClaim, "there is no such claim in namespace evil"),
			byNote:   cut(resolve.KindSnapshot, note, ofClaim, "there is no such claim in namespace evil"),
			byHandle: cut(resolve.KindSnapshot, "", "volumeSnapshotContentName: "+b.handle, "there is no such"),
			byClaim: waits("lower-case letters", "", snapshot(resolve.KindSnapshot, "claim", "",
				"persistentVolumeClaimName: bank/data")),
			byVolume: cut(resolve.KindSnapshot, "", "persistentVolumeClaimName: "+b.volume, "there is no such"),
			byPath:   lacks, bySource: lacks,
		},
		resolve.KindGroupSnapshot: {
			byName:   cut(resolve.KindGroupSnapshot, "", ofLabels, "no claim"),
			byUID:    cut(resolve.KindGroupSnapshot, uid, ofLabels, "no claim"),
			byLabel:  cut(resolve.KindGroupSnapshot, label, ofLabels, "no claim"),
			byOwner:  cut(resolve.KindGroupSnapshot, owner, ofLabels, "no claim"),
			byNote:   cut(resolve.KindGroupSnapshot, note, ofLabels, "no claim"),
			byHandle: cut(resolve.KindGroupSnapshot, "", "volumeGroupSnapshotContentName: "+b.handle, "there is no such"),
			byVolume: cut(resolve.KindGroupSnapshot, "", "volumeGroupSnapshotContentName: "+b.volume, "there is no such"),
			byClaim:  lacks, byPath: lacks, bySource: lacks,
		},
	}
	for kind, name := range map[string]string{resolve.KindSecret: "keys", resolve.KindConfigMap: "conf", resolve.KindEndpoints: "web"} {
		all[kind] = map[way]attack{
			byName: read(kind, name, ""), byUID: read(kind, name, uid), byLabel: read(kind, name, label),
			byOwner: read(kind, name, owner), byNote: read(kind, name, note),
			byHandle: lacks, byClaim: lacks, byVolume: lacks, byPath: lacks, bySource: lacks,
		}
	}
	return all
}
