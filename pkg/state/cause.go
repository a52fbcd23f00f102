package state

// Cause is what a claim, or a pod's volume that cannot be resolved, waits for, so that advice does not depend on the
// text of a reason. The zero value means that no person is needed, or that nothing more is known.
type Cause struct {
	Code CauseCode `json:"code,omitempty"`
	// Of names the driver, the class, or, as "namespace/name", the object that Code is about; "" if Code needs none.
	Of string `json:"of,omitempty"`
}

// CauseCode says who has to act on a Cause.
type CauseCode string

// The causes. Of is what each comment names first.
const (
	// DriverAway: the driver is not registered, or went away.
	DriverAway CauseCode = "DriverAway"
	// DriverSilent: the driver is registered, and does not say what it can do.
	DriverSilent CauseCode = "DriverSilent"
	// NoController: the driver is registered, and no endpoint is known that serves its Controller service.
	NoController CauseCode = "NoController"
	// ControllerAway: the endpoint of the driver's controller does not answer as it should.
	ControllerAway CauseCode = "ControllerAway"
	// DriverUnable: the driver lacks a capability that the claim needs.
	DriverUnable CauseCode = "DriverUnable"
	// NoClass: the StorageClass that the claim names does not exist.
	NoClass CauseCode = "NoClass"
	// NoDefaultClass: the claim names no class, and no class is the default.
	NoDefaultClass CauseCode = "NoDefaultClass"
	// NoVolume: no PersistentVolume fits the claim, for which none is made.
	NoVolume CauseCode = "NoVolume"
	// BadClass: the StorageClass or VolumeAttributesClass says something that cannot be done.
	BadClass CauseCode = "BadClass"
	// BadClaim: the claim says something that cannot be done.
	BadClaim CauseCode = "BadClaim"
	// NoSnapshot: the snapshot that the volume is to be made from is not usable.
	NoSnapshot CauseCode = "NoSnapshot"
	// NoSource: the claim that the volume is to be a clone of has no volume that can be cloned.
	NoSource CauseCode = "NoSource"
	// NoSecret: the secret of the class cannot be read.
	NoSecret CauseCode = "NoSecret"
	// CallFailed: the driver's last call failed; the retry says how.
	CallFailed CauseCode = "CallFailed"
	// HasPod: the pod uses the volume that is to be deleted.
	HasPod CauseCode = "HasPod"
	// Halfway: the volume was begun for what the claim said before; the claim has to be deleted.
	Halfway CauseCode = "Halfway"
	// BadRecord: the record in the journal cannot be read.
	BadRecord CauseCode = "BadRecord"
	// RecordsLost: the journal may have lost records, and the deletion was read from it.
	RecordsLost CauseCode = "RecordsLost"
	// ClaimGoes: the claim is being deleted.
	ClaimGoes CauseCode = "ClaimGoes"
	// ClusterBinds: the cluster has to bind the claim.
	ClusterBinds CauseCode = "ClusterBinds"
	// NoStorageID: no volume is made before the node has a storage id.
	NoStorageID CauseCode = "NoStorageID"
)
