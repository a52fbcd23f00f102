package main

import (
	"math/rand/v2"
	"slices"
)

// The packages of most mutants' tests.
const (
	provision = "internal/provision/controller"
	made      = "internal/provision/made"
)

// ofARun is how many of the sidecars' mutants a run plants.
const ofARun = 30

// chosen returns n of the mutants, which follow from seed.
func chosen(all []mutant, seed uint64, n int) (some []mutant) {
	for _, i := range rand.New(rand.NewPCG(seed, 0)).Perm(len(all)) {
		if len(some) < n {
			some = append(some, all[i])
		}
	}
	return some
}

// plantedSidecars has the mutants of what the sidecars do.
func plantedSidecars() []mutant { return slices.Concat(plantedProvisioner(), plantedOthers()) }

// inProvision returns a mutant of a file and a test of the package provision.
func inProvision(item, file, was, becomes, test string) mutant {
	return mutant{item, provision + "/" + file + ".go", was, becomes, provision, test}
}

func plantedProvisioner() []mutant {
	const (
		reads   = "TestParametersOfVendors"
		refuses = "TestWhatCannotBeAskedForIsTold"
		creates = "TestCreateRequest"
		clones  = "TestACloneFitsItsSource"
	)
	in := inProvision
	return []mutant{
		in("SP-02", "class", "delete(params, key)", "_ = key", reads),
		in("SP-02", "class", "case !isSecretParameter(name):", "case false:", refuses),
		in("SP-03", "classsecret", "t, problem = secretTemplate(c.Class, anySecret)", "problem = \"\"", reads),
		in("SP-03", "classsecret", "\"${pvc.namespace}\", c.Namespace, ", "", "TestSecretsOfAClass"),
		in("SP-38", "record", "case createVolume, deleteVolume:", "case createVolume:", "TestEachCallOfAVolumeHasTheSecretOfItsClass"),
		in("SP-04", "classsecret", "if (by[0] == \"\") != (by[1] == \"\") {", "if false {", refuses),
		in("SP-04", "classsecret", "case by[i] != \"\":", "case false:", refuses),
		in("SP-08", "class", "strings.ToLower(parameter) == \"fstype\"", "parameter == \"fstype\"", reads),
		in("SP-08", "class", "if named != \"\" {", "if false {", refuses),
		in("SP-08", "class", "s.FSType = c.Class.FSType", "s.FSType = \"\"", reads),
		in("SP-10", "complete", "if res.created.reject != \"\" && !r.Delete {", "if false {", "TestAVolumeThatDoesNotFitIsKept"),
		in("SP-11", "request", "RequiredBytes: s.SizeBytes, LimitBytes: s.LimitBytes}", "RequiredBytes: s.SizeBytes}", creates),
		in("SP-12", "class", "if c.Class.Metadata {", "if true {", "TestNamesThatTheDriverIsTold"),
		in("SP-13", "request", "if s.EachMode {", "if false {", creates),
		in("SP-15", "request", "if u.mode == state.Block {", "if false {", creates),
		in("SP-15", "class", "s.FSType == \"\" && c.Mode == state.Filesystem", "s.FSType == \"\"", reads),
		in("SP-16", "next", "Absent && c.Refused != \"\":", "Absent && false:", "TestAClaimWithARefusedFieldGetsNoVolume"),
		in("SP-17", "class", "case c.UID == \"\":", "case false:", refuses),
		in("SP-19", "complete", "r.Unanswered = o.again || res.err.Outcome == state.Uncertain", "r.Unanswered = false",
			"TestUnansweredCreateRepeatsTheSameRequest"),
		in("SP-20", "class", "case c.Source.Unknown != \"\":", "case false:", "TestEachReasonHasItsCause"),
		in("SP-27", "snapshotstatus", "case !e.rec.Ready:", "case false:", "TestASnapshotThatIsNotReadyIsAskedForAgain"),
		in("SP-28", "snapshotstatus", "case claim.SizeBytes < e.rec.SizeBytes:", "case false:", "TestARestoreFitsItsSnapshot"),
		in("SP-33", "class", "if f.Driver.caps.Topology && len(", "if len(", "TestNoTopologyIsAskedForOfADriverWithoutIt"),
		in("SP-34", "class", "slices.Contains(place[key], value)", "true", refuses),
		in("SP-40", "class", "case !f.Driver.caps.Clone:", "case false:", refuses),
		in("SP-41", "facts", "case src.rec.Spec.Mode != claim.Mode:", "case false:", clones),
		in("SP-41", "facts", "case claim.SizeBytes < src.rec.RequestedBytes:", "case false:", clones),
		in("SP-42", "facts", "case src.rec.Spec.Driver != claim.Class.Provisioner:", "case false:", "TestClonesOnlyWithinADriver"),
		in("SP-45", "facts", "(e.rec.Volume.Phase == state.Entering || e.unsaved)", "e.rec.Volume.Phase == state.Entering",
			"TestASourceStaysUntilItsCloneIsInTheJournal"),
		in("SP-45", "facts", "all = append(all, \"claim \"+key.String())", "_ = key", "TestAVolumeIsKeptForWhatIsToBeMadeOfIt"),
		in("SP-52", "record", "cmp.Or(r.Spec.Secrets.Modify, r.Spec.Secrets.Provision)", "cmp.Or(r.Spec.Secrets.Provision)",
			"TestTheSecretOfAModification"),
		{
			"SP-30", made + "/claim.go", "case namespace != \"\" && namespace != claim.Namespace:", "case namespace == \"/\":", made,
			"TestWhatAClaimIsToHold",
		},
	}
}

func plantedOthers() []mutant {
	const (
		grows = "TestGrowAndAttachRequests"
		cuts  = "TestSecretsOfASnapshotClass"
	)
	in := inProvision
	return []mutant{
		in("SA-01", "request", "VolumeContext: v.Spec.Context, Secrets: secret,", "Secrets: secret,", grows),
		in("SA-03", "call", "if err != nil && callError(\"\", err).Code == codes.NotFound.String() {",
			"if err != nil && callError(\"\", err).Code == codes.DataLoss.String() {", "TestAttachAndDetach"),
		in("SA-05", "complete", "if r.NodeID == \"\" { // an empty", "if true { // an empty", "TestDetachNamesTheNodeThatWasAttached"),
		in("SA-13", "request", "accessmodes.ToCSIAccessMode(list[:1], multiWriter)", "accessmodes.ToCSIAccessMode(list, multiWriter)",
			"TestAccessModeOfAMixedListIsItsFirst"),
		in("SR-01", "request", "LimitBytes: o.limit}", "LimitBytes: 0}", grows),
		in("SR-02", "complete", "if !res.nodeExpand && !due {", "if !due {", "TestExpandLeavesTheNodeItsPart"),
		in("SR-03", "next", "case !caps.Expand && caps.NodeExpand:", "case false:", "TestExpandByTheNodeAlone"),
		in("SR-04", "complete", "\t\tr.Growing = 0\n\t\tfallthrough", "\t\tfallthrough", "TestRefusedExpansionIsTakenBack"),
		in("SR-07", "next", "case offlineOnly(caps) && f.InUse != \"\":", "case false:", "TestOfflineExpansionWaitsUntilNobodyUsesIt"),
		in("SS-05", "snapshotcall", "ref = k.rec.Spec.List", "_ = ref", "TestTheCallsOfASnapshotHaveItsSecrets"),
		in("SS-06", "snapshotclass", "if values[i] == \"\" || strings.Contains(values[i], \"${\") {", "if false {", cuts),
		in("SS-07", "snapshotclass", "if strings.HasPrefix(key, reserved) {", "if false {", cuts),
		in("SS-07", "snapshotclass", ", groupSecret, groupGetSecret} {", "} {", cuts),
		in("SS-27", "snapshotclass", "if c.Metadata {", "if true {", "TestNamesThatTheDriverIsTold"),
	}
}
