package main

import "slices"

// The packages of the mutants' tests, and files with several mutants.
const (
	plan    = "pkg/manager/plan"
	resolve = "internal/wants/resolve"
)

// planted has the mutants of the tree.
func planted() []mutant {
	const (
		grow = plan + "/grow.go"
		next = plan + "/next.go"
		back = plan + "/backoff.go"

		who     = "TestWhoExpandsNothing"
		waiting = "TestAPodWaitsForAVolumeThatIsToGrow"
		pauses  = "TestPausesDoubleUpToTheirLimit"
		one     = "TestAVolumeOfOnePodIsKeptFromAnotherWhateverIsKnownOfTheFirst"
		label   = "TestAVolumeHasOneLabelForAllItsPods"
	)
	return append([]mutant{
		{"C32", back, "retryMost  = 2 * time.Minute", "retryMost  = 3 * time.Minute", plan, pauses},
		{"C32", back, "retryFirst = 500 * time.Millisecond", "retryFirst = 400 * time.Millisecond", plan, pauses},
		{"N-28", back, "refusedFirst = 30 * time.Second", "refusedFirst = time.Second", plan, pauses},
		{"N-29", back, "refusedMost  = 10 * time.Minute", "refusedMost  = 9 * time.Minute", plan, pauses},
		{"N-30", back, "if err.Outcome == state.Refused {", "if false {", plan, pauses},
		{"I01", grow, "case v.SizeBytes == 0 || w.SizeBytes <= v.SizeBytes:", "case v.SizeBytes == 0:", plan, who},
		{"I11", grow, "case !c.Driver.Expand:", "case false:", plan, who},
		{"I13", grow, "case w.NoGrow != \"\":", "case false:", plan, who},
		{"I14", grow, "f.Driver.Up && !f.Driver.Expand) {", "!f.Driver.Expand) {", plan, who},
		{"I15", grow, "case !m.ReadOnly:", "case true:", plan, "TestAReadOnlyMountIsNotExpanded"},
		{"I02", grow, "return grows(v, w) && !m.ReadOnly &&", "return false &&", plan, waiting},
		{"I08", grow, "&& !v.ExpandFailed.Value().Final", "", plan, waiting},
		{"I17", grow, "if m.Waits && !waitsToGrow(v, w, m) {", "if false {", plan, waiting},
		{"K01", next, "if exclusive(w, v) {", "if false {", plan, one},
		{"K03", next, "other != pod && o.Phase != state.Absent {", "other != pod && o.Phase == state.Present {", plan, one},
		{"K03", plan + "/exclusive.go", "return v.Spec.Exclusive() || w", "return v.Spec.Exclusive() && w", plan, one},
		{"H08", next, "w.Pods[pod].SELinuxLabel != v.Spec.SELinuxLabel {", "false {", plan, label},
		{"A06", next, "return v.Attach.Phase == state.Present && len(w.Pods) > 0", "return true", plan, "TestAttachmentThatIsNeededNoMore"},
		{"N-47", next, `group != "" && group != v.Spec.MountGroup {`, `group == "x" {`, plan, "TestGroupIsOneForStageAndAllPods"},
		{"N-102", back, "r.Final = err.Outcome == state.Final", "r.Final = false", plan, "TestAnExpansionThatIsRefusedForGoodDoesNotHoldTheVolumeUp"},
		{
			"B15", next, "v.SizeBytes = w.HaveBytes", "v.SizeBytes = w.SizeBytes", plan,
			"TestNewRecordStartsFromTheSizeTheNodeHasMade",
		},
		{
			"D09", next, "until.Before(c.held.Until)", "c.held.Until.Before(until)", plan,
			"TestHeldNamesTheFirstReasonAndTheEarliestMoment",
		},
		{
			"F04", plan + "/renew.go", "if !m.Renewal.Republish {", "if m.Renewal.Republish {", plan,
			"TestWhatADriverWantsAnewCountsFromTheNextCall",
		},
		{
			"F10", plan + "/renew.go", "republishEvery  = time.Minute", "republishEvery  = time.Hour", plan,
			"TestADriverThatWantsItIsCalledAgainFromTimeToTime",
		},
		{"N-45", plan + "/group.go", "if m.FSGroup == nil {", "if true {", plan, "TestGroupIsOneForStageAndAllPods"},
	}, slices.Concat(resolved(), read(), asked(), rules())...)
}

// rules has the mutants of CSI's requirements for the host, and of Kubernetes 1.37's.
func rules() []mutant {
	const scenario = "TestScenario/"
	return []mutant{
		{"A06", plan + "/next.go", "|| w.Spec.NoAttach && v.InUse()", "", plan, "TestAttachmentOfAClusterThatIsNeededNoMore"},
		{"I08", plan + "/backoff.go", "if v.ExpandFailed != nil && !v.ExpandFailed.Final {", "if v.ExpandFailed != nil {", "pkg/manager", scenario + "forbidden-while-in-use"},
		{"N-102", plan + "/backoff.go", "return !state.CodeOf(r.Call, r.Code).Conflict })", "return true })", "pkg/manager", scenario + "forbidden-while-in-use"},
		{"N-98", plan + "/grow.go", "if !f.Driver.Up || !f.Driver.Offline || !grows(v, w) {", "if true {", "pkg/manager", scenario + "grows-offline-only"},
		{"N-90", "internal/cluster/report/drivers.go", "len(d.NodeID) > maxNodeID", "false", "internal/cluster/report", "TestDriverThatContradictsIsLeftOut"},
		{"J11", "internal/cluster/report/drivers.go", `if d.NodeID == "" {`, "if false {", "internal/cluster/report", "TestDriverThatContradictsIsLeftOut"},
		{"H15", "internal/serve/metrics/selinux.go", "of = l.pods", "_ = l.pods", "internal/serve/metrics", "TestLabelsAreCounted"},
		{"L16", "internal/kinds/payload/write.go", "if err := s.setGroup(ctx, in, name); err != nil {", "if err := error(nil); err != nil {", "internal/kinds/payload", "TestReaderSeesOneSetOrTheOther"},
	}
}

// resolved has the mutants of how Kubernetes' objects are resolved.
func resolved() []mutant {
	const (
		attach = resolve + "/attach.go"
		claim  = resolve + "/claim.go"
		place  = resolve + "/affinity.go"

		attached = "TestVolumeAttachmentHoldsWhereAClusterAttaches"
		named    = "TestProblemNamesObjectFieldFoundAndWanted"
		csi      = "TestNodeAffinityOfACSIVolume"
		node     = "TestInAClusterTheNodesLabelsDecide"
	)
	return []mutant{
		{"A21", attach, "if ok && va.Status.Attached && va.DeletionTimestamp == nil {", "if ok {", resolve, attached},
		{"C22", attach, "case va.Status.AttachError != nil:", "case false:", resolve, attached},
		{"A03", attach, "case !r.config.ClusterAttach:", "case false:", resolve, attached},
		{"B04", claim, "if claim.DeletionTimestamp != nil &&", "if false &&", resolve, named},
		{"B02", claim, `p != "" && p != corev1.ClaimBound {`, `false && p != "" {`, resolve, named},
		{"B05", claim, "return pv, refMismatch(pv, claim)", "return pv, nil", resolve, named},
		{"B06", claim, "if u.owned && !metav1.IsControlledBy(claim, r.pod) {", "if false {", resolve, named},
		{"A30", place, "return r.onNode(affinity.Required)", "return nil", resolve, node},
		{"A30", place, "if r.selects(affinity.Required, labels, csi) {", "if true {", resolve, csi},
		{"N-14", place, "if len(place) == 0 {", "if true {", resolve, "TestTopologyOfAVolume"},
	}
}

// asked has the mutants of requests, ids and built-in kinds.
func asked() []mutant {
	const owner = "TestOwnershipFollowsFSGroupPolicy"
	return []mutant{
		{
			"F05", "pkg/csiclient/request.go", "maps.Clone(v.Spec.Context),",
			`merge(maps.Clone(v.Spec.Context), map[string]string{"csi.storage.k8s.io/pod.uid": "x"}),`,
			"pkg/csiclient", "TestRequestsAreAsTheGoldenFilesSay",
		},
		{
			"F13", "pkg/csiclient/accessmode.go", "ToCSIAccessMode(list, multiWriter)", "ToCSIAccessMode(list, false)",
			"pkg/csiclient", "TestAccessModesAreMappedAsTheKubeletAndTheProvisionerDo",
		},
		{"F19", "pkg/state/id.go", "hashHex(string(pod)+name)", "hashHex(name+string(pod))", "pkg/state", "TestIDsAreApart"},
		{"G04", resolve + "/ownership.go", "	default:\n		return \"\"", "	default:", resolve, owner},
		{"G05", resolve + "/ownership.go", "if w.Mount.FSGroup == nil || w.Mount.ReadOnly {", "if w.Mount.FSGroup == nil {", resolve, owner},
		{
			"H03", resolve + "/selinux.go", "Applied: r.config.SELinux.AllModes ||", "Applied: true ||",
			resolve, "TestWhichVolumesAreLabelledWhenTheyAreMounted",
		},
		{
			"M07", "internal/kinds/hostpath/hostpath.go", `case slices.Contains(strings.Split(path, "/"), ".."):`,
			`case slices.Contains(strings.Split(path, "/"), "..."):`, "internal/kinds/hostpath", "TestAPathWithDotsIsRefused",
		},
		{
			"B03", resolve + "/claim.go", "&& !slices.Contains(claim.Finalizers, protection) {",
			"&& (true || slices.Contains(claim.Finalizers, protection)) {", resolve, "TestClaimBeingDeletedIsUsedWhileItIsProtected",
		},
		{
			"B22", resolve + "/emptydir.go", "src.SizeLimit = smaller(src.SizeLimit, podLimit(r.pod, corev1.ResourceEphemeralStorage",
			"_ = smaller(src.SizeLimit, podLimit(r.pod, corev1.ResourceEphemeralStorage",
			resolve, "TestTheLimitOfAnEmptyDirIsTheSmallerOfItsOwnAndThePods",
		},
		{
			"N06", resolve + "/container.go", "case corev1.MountPropagationHostToContainer:", `case "x":`,
			resolve, "TestContainerMount",
		},
	}
}

// read has the mutants of how a pod and its volumes are read.
func read() []mutant {
	return []mutant{
		{"G01", resolve + "/ownership.go", "case storagev1.FileFSGroupPolicy:", `case "x":`, resolve, "TestOwnershipFollowsFSGroupPolicy"},
		{"G02", resolve + "/ownership.go", "slices.Contains(w.Spec.AccessModes, state.ReadWriteOnce) ||", "false ||", resolve, "TestOwnershipFollowsFSGroupPolicy"},
		{"G03", resolve + "/ownership.go", `if w.Spec.FSType == "" || !one {`, "if !one {", resolve, "TestOwnershipFollowsFSGroupPolicy"},
		{"I02", resolve + "/size.go", "status == corev1.PersistentVolumeClaimNodeResizePending ||", "false ||", resolve, "TestTheClaimSaysWhetherTheNodeExpands"},
		{"I06", resolve + "/size.go", "w.SizeBytes = allocated.Value()", "_ = allocated.Value()", resolve, "TestTheClaimSaysWhetherTheNodeExpands"},
		{"I11", resolve + "/size.go", "w.Grown = not ||", "w.Grown = false && not ||", resolve, "TestTheClaimSaysWhetherTheNodeExpands"},
		{"I13", resolve + "/size.go", "w.NoGrow = noGrow(claim, status)", "_ = noGrow(claim, status)", resolve, "TestTheClaimSaysWhetherTheNodeExpands"},
		{"B15", resolve + "/size.go", "w.HaveBytes = claim.Status.Capacity.Storage().Value()", "w.HaveBytes = 0", resolve, "TestSizes"},
		{"B16", resolve + "/size.go", "w.SizeBytes = pv.Spec.Capacity.Storage().Value()", "w.SizeBytes = 0", resolve, "TestSizes"},
		{"H01", resolve + "/selinux.go", "!supported ||", "", resolve, "TestWhichVolumesAreLabelledWhenTheyAreMounted"},
		{"H04", resolve + "/selinux.go", "len(s.AccessModes) == 1 && s.AccessModes[0] == state.ReadWriteOncePod", "len(s.AccessModes) == 1", resolve, "TestWhichVolumesAreLabelledWhenTheyAreMounted"},
		{"H06", resolve + "/selinux.go", "if relabelsRecursively(r.pod) {", "if false {", resolve, "TestWhichVolumesAreLabelledWhenTheyAreMounted"},
		{"H12", resolve + "/selinux.go", "Applied: r.config.SELinux.AllModes ||", "Applied: ", resolve, "TestWhichVolumesAreLabelledWhenTheyAreMounted"},
		{"H15", resolve + "/selinux.go", "if len(labels) > 1 {", "if false {", resolve, "TestContainersOfOnePodThatDifferAreRefused"},
		{"A18", resolve + "/csi.go", `if mode == state.Block && u.mount != "" {`, "if false {", resolve, "TestProblemNamesObjectFieldFoundAndWanted"},
		{"A17", resolve + "/csi.go", `if mode == state.Filesystem && u.device != "" {`, "if false {", resolve, "TestProblemNamesObjectFieldFoundAndWanted"},
		{"F01", resolve + "/csi.go", "if p.podInfo {", "if true {", resolve, "TestPodInfoOnMount"},
		{"F03", resolve + "/csi.go", `reserved + "pod.uid":             string(pod.UID),`, `reserved + "pod.uid":             pod.Name,`, resolve, "TestPodInfoOnMount"},
		{"A26", resolve + "/csi.go", "w.GID = u.readOnly || readOnly, gid(pv)", "w.GID = u.readOnly || readOnly, nil", resolve, "TestGroupsThatVolumesBring"},
		{"A14", resolve + "/pod.go", `each("initContainers", i, c.VolumeMounts, c.VolumeDevices)`, "_ = c.Name; _ = i", resolve, "TestFullPodResolvesAsGolden"},
		{"A14", resolve + "/pod.go", `each("ephemeralContainers", i, c.VolumeMounts, c.VolumeDevices)`, "_ = c.Name; _ = i", resolve, "TestFullPodResolvesAsGolden"},
		{"A07", resolve + "/pod.go", `name: EphemeralClaim(r.pod, *v).Name, owned: true`, "name: v.Name, owned: true", resolve, "TestFullPodResolvesAsGolden"},
		{"A12", resolve + "/pod.go", "w.Volumes = mergeSame(w.Volumes)", "_ = mergeSame", resolve, "TestTwoNamesForOneVolumeAreOneWant"},
		{"B07", resolve + "/pod.go", "case len(faults) > 0:", "case len(w.Volumes) > 0:", resolve, "TestProblemHurtsNoOtherVolume"},
		{"F22", resolve + "/inline.go", "rules == nil || slices", "true || slices", resolve, "TestWhoMayHaveInlineVolumes"},
		{"A33", resolve + "/pod.go", "if hasEnded(pod) {", "if hasEnded(pod) || pod.DeletionTimestamp != nil {", resolve, "TestPodBeingDeletedKeepsItsVolumes"},
		{"N02", resolve + "/container.go", "ReadOnly: m.ReadOnly, MapIDs", "MapIDs", resolve, "TestContainerMount"},
		{"N07", resolve + "/container.go", "w.RecursiveReadOnly, w.Note, err = u.recursive(m)", "_, w.Note, err = u.recursive(m)", resolve, "TestContainerMountRecursiveReadOnly"},
		{"N08", resolve + "/container.go", "w.Index, w.Fixed = i, IsFixed(kind)", "w.Index = i", resolve, "TestKindsThatAreNotTheContainersToChange"},
	}
}
