package server

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// EmbeddedDriver is the name of the driver that the daemon itself serves if it is told to.
const EmbeddedDriver state.DriverName = "local.csi-volmgr.dev"

// CauseCodes lists the codes of causes.
func CauseCodes() []state.CauseCode {
	return []state.CauseCode{
		state.DriverAway, state.DriverSilent, state.NoController, state.ControllerAway,
		state.DriverUnable, state.NoClass, state.NoDefaultClass, state.NoVolume,
		state.BadClass, state.BadClaim, state.NoSnapshot, state.NoSource, state.NoSecret, state.CallFailed, state.HasPod,
		state.Halfway, state.BadRecord, state.RecordsLost, state.ClaimGoes, state.ClusterBinds, state.NoStorageID,
		state.CauseCode(state.NoIssuer),
	}
}

// needsPerson reports whether a person has to act before the wait for c can end.
func needsPerson(c Cause) bool {
	switch c.Code {
	case state.NoController, state.DriverUnable, state.NoClass, state.NoDefaultClass, state.BadClass, state.BadClaim,
		state.Halfway, state.BadRecord, state.RecordsLost, state.NoStorageID, state.CauseCode(state.NoIssuer):
		return true
	}
	return false
}

// unresolved returns the verdict for a volume that could not be resolved: Waiting while
// the sources or the claim's controller still work on it, else Stuck.
func (f Facts) unresolved(v manager.PodVolumeStatus) string {
	if len(f.NotReady) > 0 || v.Unread && f.away() {
		return Waiting
	}
	if needsPerson(Cause(v.Cause)) {
		return Stuck
	}
	for _, c := range f.claimsOf(v) {
		if c.Phase == "Pending" && !needsPerson(c.Cause) && c.Retry.Attempts < stuckAfter && !refused(c.Retry.retry()) {
			return Waiting
		}
	}
	return Stuck
}

// explainUnresolved adds the claim of a volume that could not be resolved, and what ends the wait.
func (f Facts) explainUnresolved(e *Explanation, v manager.PodVolumeStatus) {
	var claim ClaimStatus
	for _, c := range f.claimsOf(v) {
		claim = c
		f.explainClaim(e, c)
	}
	if v.Unread && f.away() {
		e.add("next", "retried automatically when the objects change")
		e.add("you can", "%s", adviceAway)
		return
	}
	cause := Cause(v.Cause)
	switch {
	case cause.Code != "":
	case claim.Phase == "Bound":
		claim = ClaimStatus{} // it is not what the volume waits for
	default:
		cause = claim.Cause
	}
	f.explainWait(e, cause, claim)
}

// explainWait adds what happens next to a claim, or to a pod's volume that cannot be resolved, and what a person can
// do. c is the claim; of a volume without one it has no name.
func (f Facts) explainWait(e *Explanation, cause Cause, c ClaimStatus) {
	if c.Call != "" {
		e.add("next", "the call ends or times out; a call without an answer is repeated")
		return
	}
	e.add("next", "%s", f.nextOn(cause, c.Retry.retry()))
	if advice := f.adviceOn(cause, c); advice != "" {
		e.add("you can", "%s", advice)
	}
}

// nextOn says what ends the wait for the cause.
func (f Facts) nextOn(cause Cause, r state.Retry) string {
	switch {
	case cause.Code == state.DriverAway:
		return fmt.Sprintf("continues automatically as soon as driver %s registers", cause.Of)
	case cause.Code == state.ControllerAway:
		return fmt.Sprintf("continues automatically as soon as the controller of driver %s answers", cause.Of)
	case cause.Code == state.NoController:
		return "not automatically: when the endpoint of the driver's controller is registered"
	case cause.Code == state.DriverSilent:
		return "the driver is asked again automatically"
	case cause.Code == state.NoClass:
		return fmt.Sprintf("continues automatically as soon as StorageClass %s, or a PersistentVolume of that class, is "+
			"applied", cause.Of)
	case cause.Code == state.NoDefaultClass:
		return "continues automatically as soon as a class is the default"
	case cause.Code == state.NoVolume:
		return "continues automatically as soon as a PersistentVolume fits"
	case cause.Code == state.HasPod:
		return "continues automatically as soon as nothing uses the volume"
	case cause.Code == state.BadRecord:
		return "nothing: what the record is about is not touched until it can be read"
	case cause.Code == state.RecordsLost:
		return "not automatically: what the deletion would delete may be newer than the record of it"
	case cause.Code == state.ClaimGoes:
		return "not automatically: a claim that is being deleted gets no new user"
	case cause.Code == state.ClusterBinds:
		return "continues automatically as soon as the cluster binds the claim"
	case cause.Code == state.CauseCode(state.NoIssuer):
		return "continues automatically as soon as the pod has no such volume"
	case cause.Code == state.NoStorageID:
		return "not automatically: when the daemon starts with a storage id"
	case r.Final:
		return "not automatically: when the driver registers again, or the claim or its class changes"
	case r.NotBefore.After(f.Now):
		return "retried automatically in " + Age(f.Now, r.NotBefore)
	}
	return "retried automatically when the objects change"
}

// adviceOn says what a person can do about the cause, with one command; "" if only waiting helps.
func (f Facts) adviceOn(cause Cause, c ClaimStatus) string {
	namespace, name, _ := strings.Cut(cause.Of, "/")
	switch cause.Code {
	case state.DriverAway:
		return f.startDriver(state.DriverName(cause.Of)) + forgetIfGone(c)
	case state.ControllerAway:
		return startController(state.DriverName(cause.Of)) + forgetIfGone(c)
	case state.NoController:
		return f.nameController(state.DriverName(cause.Of))
	case state.DriverSilent:
		return fmt.Sprintf("see the log of driver %s, which is registered and does not say what it can do: csi-volmgr "+
			"explain driver %s", cause.Of, cause.Of)
	case state.DriverUnable:
		return f.correct(c, "name a class of another driver in the claim's spec.storageClassName, and apply the claim again")
	case state.NoClass, state.NoDefaultClass:
		return f.adviceOnClass(cause, c)
	case state.NoVolume:
		return "apply a PersistentVolume that fits, or correct the claim; see those that exist: csi-volmgr get pv"
	case state.BadClass:
		return fmt.Sprintf("correct class %s and apply it: csi-volmgr apply -f FILE", cause.Of)
	case state.BadClaim:
		return f.correct(c, "correct the claim and apply it again")
	case state.NoSnapshot:
		return fmt.Sprintf("see what the snapshot waits for: csi-volmgr explain snapshot %s -n %s", name, namespace)
	case state.NoSource:
		return fmt.Sprintf("see what the claim to be cloned waits for: csi-volmgr explain pvc %s -n %s", name, namespace)
	case state.NoSecret:
		return fmt.Sprintf("apply secret %s, which class %s names: csi-volmgr apply -f FILE", cause.Of, c.Class)
	case state.CallFailed:
		return adviceOnCall(cause, c)
	case state.HasPod:
		return f.endUse(c)
	case state.Halfway:
		return fmt.Sprintf("delete the claim with what was begun for it: csi-volmgr delete pvc %s -n %s", c.Name, c.Namespace)
	case state.BadRecord:
		return "stop the daemon and take older values from the spare copy: csi-volmgr journal repair"
	case state.RecordsLost:
		return adviceLost
	case state.CauseCode(state.NoIssuer):
		return AdviceNoIssuer
	case state.NoStorageID:
		return "end the daemon and start it with a storage id that no other node has (in the configuration file: " +
			"storage-id): csi-volmgr run --storage-id=NAME"
	case state.ClaimGoes, state.ClusterBinds:
		return fmt.Sprintf("see what the cluster says of it: kubectl describe pvc %s -n %s", c.Name, c.Namespace)
	}
	if c.Name != "" {
		return ""
	}
	return "correct or apply the object named above (what is mounted stays): csi-volmgr apply -f FILE"
}

// adviceLost is the advice for a deletion that was read from a journal that may have lost records.
const adviceLost = "look whether what is to be deleted is old, and delete it again to confirm that; or confirm all " +
	"such deletions: csi-volmgr journal accept --reason=TEXT"

// correct says how a claim is corrected: a claim that a front end made, in that front end's words.
func (f Facts) correct(c ClaimStatus, how string) string {
	for _, v := range f.Named {
		if v.Claim == c.key() && v.Ends != "" {
			return "create the volume again, with other options, after: " + v.Ends
		}
	}
	return how + ": csi-volmgr apply -f FILE"
}

// adviceOnClass says how a claim gets a class that exists: if there is none, with the command that makes one.
func (f Facts) adviceOnClass(cause Cause, c ClaimStatus) string {
	if len(f.Classes) > 0 {
		return f.correct(c, "name a class that exists in the claim's spec.storageClassName, and apply the claim again")
	}
	driver, name, metadata := EmbeddedDriver, cause.Of, ""
	if cause.Code == state.NoDefaultClass {
		name, metadata = "default", `, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}`
	}
	for _, d := range f.Drivers {
		if d.Up && !d.Builtin {
			driver = d.Name
			break
		}
	}
	return fmt.Sprintf(`make class %s, of driver %s: echo '{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", `+
		`"metadata": {"name": "%s"%s}, "provisioner": "%s"}' | csi-volmgr apply -f -`, name, driver, name, metadata, driver)
}

// adviceOnCall says who can mend what the driver answered to the controller's call.
func adviceOnCall(cause Cause, c ClaimStatus) string {
	code := state.CodeOf(c.Retry.Call, c.Retry.Code)
	advice := code.Advice
	switch {
	case notCalled(c.Retry.retry()):
		advice = "correct what the error names: driver {driver} was not called"
	case code.Unauthorized:
		advice = fmt.Sprintf("see which rights the driver has at its storage, and the credentials in the secret of class %s",
			cmp.Or(c.Class, "-"))
	case advice == "" || strings.Contains(advice, "{handle}"): // the claim has no volume yet
		advice = "see the log of driver {driver} at the time of the failure"
	}
	advice = strings.NewReplacer("{volume}", "of claim "+c.key(), "{driver}", cause.Of).Replace(advice)
	return advice + "; about the driver: csi-volmgr explain driver " + cause.Of
}

// startDriver says how a driver that is not registered is started. One that was registered has a process of its own.
func (f Facts) startDriver(name state.DriverName) string {
	if d, _ := f.driver(name); name == EmbeddedDriver && d.Generation == 0 {
		return "end the daemon and start it with its own driver (in the configuration file: local-driver: true): " +
			"csi-volmgr run --local-driver"
	}
	return fmt.Sprintf("start the driver, or see why it is not registered: csi-volmgr explain driver %s", name)
}

// endUse says how the use of the claim's volume on this node ends.
func (f Facts) endUse(c ClaimStatus) string {
	for _, v := range f.Volumes {
		if v.Volume.Spec.Value().Claim != c.key() {
			continue
		}
		if pods := podsOf(v.Volume); len(pods) > 0 {
			return "end the use by a pod: " + f.Ends.of(pods[0])
		}
	}
	return fmt.Sprintf("see what has the volume: csi-volmgr explain volume %s", c.key())
}

// Ends has the words that end a pod's use of its volumes, by "namespace/name", for pods that csi-volmgr delete pod does
// not end.
type Ends map[string]string

// of returns the words that end the pod's use.
func (e Ends) of(p state.Pod) string {
	if words := e[p.Namespace+"/"+p.Name]; words != "" {
		return words
	}
	return fmt.Sprintf("csi-volmgr delete pod %s -n %s", p.Name, p.Namespace)
}

// podEnding names a pod, and the words of its origin that end it, if it has such.
func (f Facts) podEnding(name string) string {
	if words := f.Ends[name]; words != "" {
		return fmt.Sprintf("pod %s (ends by: %s)", name, words)
	}
	return "pod " + name
}
