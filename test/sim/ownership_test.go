package sim

// ownership are mistakes about whose a volume or a snapshot is. Each is looked for in the scripts of
// its actor.
var ownership = []planting{
	{"a-claim-has-what-it-names", "authors", []bug{{
		"the resolver does not ask whose a volume is", "internal/wants/resolve/claim.go",
		`claim); why != "" {`, `claim); why != "" && false {`,
	}}},
	{"the-data-of-a-deleted-claim-is-for-the-next", "authors", []bug{{
		"the binder does not ask whose a volume is", "internal/provision/binding/choose.go",
		`case reason == "" && w.owners[pv.Name] != resolve.Owner{}:`, `case w.owners[pv.Name] == resolve.Owner{Claim: "none"}:`,
	}}},
	{"owners-are-in-memory-alone", "authors", []bug{{
		"the owner of a volume is not written", "internal/provision/binding/owner.go",
		"if err := b.c.Journal.CommitBucket(ctx, ownersBucket, changes); err != nil {", "if err := error(nil); err != nil {",
	}}},
	{"choices-are-in-memory-alone", "authors", []bug{
		{
			"a choice is not written", "internal/provision/binding/binder.go",
			"if err := b.c.Journal.CommitBucket(ctx, bucket, changes); err != nil {", "if err := error(nil); err != nil {",
		},
		{
			"the owner of a volume is not written", "internal/provision/binding/owner.go",
			"if err := b.c.Journal.CommitBucket(ctx, ownersBucket, changes); err != nil {", "if err := error(nil); err != nil {",
		},
	}},
	{"a-deleted-claim-leaves-nothing-behind", "authors", []bug{{
		"a deletion forgets the owner", "internal/provision/binding/binder.go",
		"o.Released, volume = true, name\n\t\t\towners[name] = o", "volume = name\n\t\t\tdelete(owners, name)",
	}}},
	{"the-owner-is-the-last-that-asks", "authors", []bug{{
		"a record of an owner counts for nothing", "internal/provision/binding/owner.go",
		`case had.Claim != "" && had.Storage == a.storage:`, `case had.Claim != "" && had.Storage == a.storage && len(a.named) == 0:`,
	}}},
	{"volumes-are-chosen-while-a-source-is-silent", "authors", []bug{{
		"the binder does not wait for the sources", "internal/provision/binding/binder.go",
		"if len(b.c.Silent()) == 0 {", "if len(b.c.Silent()) >= 0 {",
	}}},
	{"a-snapshot-goes-whatever-other-record-has-it", "shares", []bug{{
		"no other record is asked", "internal/provision/controller/snapshotnext.go",
		"case fate == stays:", "case fate == stays && false:",
	}}},
	{"a-volume-goes-whatever-other-author-lists-it", "shares", []bug{{
		"no other PersistentVolume is asked", "internal/provision/controller/controller.go",
		`if by := c.listed(e); by != "" {`, `if by := c.listed(e); by != "" && false {`,
	}}},
	{"a-schedule-counts-names", "schedules", []bug{
		{
			"a snapshot of another volume stays in the schedule", "internal/provision/schedule/schedule.go",
			"if f.Snapshots[name].foreign(f.Volume) {", "if f.Snapshots[name].foreign(f.Volume) && false {",
		},
		{
			"a snapshot of another volume counts", "internal/provision/schedule/schedule.go",
			"if f.Snapshots[name].of(f.Volume) {\n\t\t\tready = append(ready, name)\n", "if s := f.Snapshots[name]; s.Ready && !s.Deleting {\n\t\t\tready = append(ready, name)\n",
		},
	}},
	{"a-schedule-keeps-one-less", "schedules", []bug{{
		"it deletes when it has as many as it keeps", "internal/provision/schedule/schedule.go",
		"len(ready) > max(r.Keep, 1)", "len(ready) >= max(r.Keep, 1)",
	}}},
	{"a-lower-number-needs-no-word", "schedules", []bug{{
		"to keep fewer deletes unasked", "internal/provision/schedule/keeper.go",
		"if len(deletes) > 0 && !sure {", "if len(deletes) > 0 && false {",
	}}},
	{"the-number-to-keep-is-in-memory-alone", "schedules", []bug{{
		"a schedule that was changed is not written", "internal/provision/schedule/keeper.go",
		"r.Schedule = s\n\tif err := k.commit(ctx, s.key(), r); err != nil {", "r.Schedule = s\n\tif k.rows[s.key()] = r; len(k.rows) > 1 {\n\t\terr = ErrUnreadable",
	}}},
}
