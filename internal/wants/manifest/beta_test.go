package manifest

import "testing"

// Group snapshots of v1beta1 are taken as v1, in YAML and in JSON.
func TestGroupSnapshotsOfBetaAreTaken(t *testing.T) {
	const spec = `"kind": "VolumeGroupSnapshotClass", "metadata": {"name": "a"}, "driver": "d.example.com", "deletionPolicy": "Delete"}`
	for _, text := range []string{
		`{"apiVersion": "groupsnapshot.storage.k8s.io/v1beta1", ` + spec,
		"# YAML\n" + `{"apiVersion": "groupsnapshot.storage.k8s.io/v1beta1", ` + spec,
	} {
		objects, err := Decode("x.yaml", []byte(text))
		if err != nil || len(objects) != 1 || objects[0].GetObjectKind().GroupVersionKind().Version != "v1" {
			t.Errorf("%v, %v", objects, err)
		}
	}
}
