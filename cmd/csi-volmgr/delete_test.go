package main

import (
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// Claims and snapshots that are not named one by one are printed, with what becomes of their data, and deleted only with
// --yes, without a terminal, too. Pods are not asked about, and an object that is named needs no --yes.
func TestASetOfClaimsIsDeletedOnlyWithYes(t *testing.T) {
	for args, want := range map[string]struct {
		code    int
		text    string // part of the output
		deleted string // by the daemon
	}{
		"delete pvc --all":                      {exitUsage, "would delete pvc/data: its volume pv-data of 256Mi goes with ITS DATA\nwould delete pvc/more: it has no volume\n", ""},
		"delete pvc --all --reason=x":           {exitUsage, "nothing is deleted without --yes: csi-volmgr ", ""},
		"delete claims d*":                      {exitUsage, "would delete pvc/data", ""},
		"delete pvc/[a-d]ata":                   {exitUsage, "delete 'pvc/[a-d]ata' --yes", ""},
		"delete pvc -l app=db":                  {exitUsage, "would delete pvc/data", ""},
		"delete snapshot --all":                 {exitUsage, "would delete snapshot/monday: ", ""},
		"delete vs m*":                          {exitUsage, "would delete snapshot/monday: ", ""},
		"delete groupsnapshot --all":            {exitUsage, "would delete groupsnapshot/bank: ", ""},
		"delete pvc --all --yes":                {exitDone, "pvc/data deleted\npvc/more deleted\n", "data more"},
		"delete pvc m* --yes":                   {exitDone, "pvc/more deleted\n", "more"},
		"delete pvc -l app=db --yes":            {exitDone, "pvc/data deleted\n", "data"},
		"delete pvc data":                       {exitDone, "pvc/data deleted\n", "data"},
		"delete pvc data more":                  {exitDone, "pvc/data deleted\npvc/more deleted\n", "data more"},
		"delete pvc data --yes":                 {exitDone, "pvc/data deleted\n", "data"},
		"delete pvc nosuch m*":                  {exitUsage, "would delete pvc/nosuch: there is none", ""},
		"delete pvc z*":                         {exitDone, "No pvc found in namespace default.", ""},
		"delete pvc --all -n none":              {exitDone, "No pvc found in namespace none.", ""},
		"delete pvc -l app=other":               {exitDone, "No pvc found in namespace default.", ""},
		"delete pod --all":                      {exitDone, "pod/web deleted\n", "web"},
		"delete pod -l app=web":                 {exitDone, "pod/web deleted\n", "web"},
		"delete pod w*":                         {exitDone, "pod/web deleted\n", "web"},
		"delete pvc m* -l app=db":               {exitUsage, "and no name; the same holds for -l", ""},
		"delete pvc --all -l app=db":            {exitUsage, "expected either --all or -l", ""},
		"delete pvc/m* pod/w*":                  {exitUsage, "patterns need one kind", ""},
		"delete pvc [":                          {exitUsage, "expected a pattern such as 'db-*'", ""},
		"delete schedule d*":                    {exitUsage, `unknown kind "schedule"`, ""},
		"delete -f x.yaml --all":                {exitUsage, "-f takes the objects from the manifest", ""},
		"delete -f x.yaml -l a=b":               {exitUsage, "-f takes the objects from the manifest", ""},
		"volume set pvc/data --reclaim=Retain":  {exitDone, "pvc/data configured: volume pv-data has reclaimPolicy Retain\n", ""},
		"volume set pvc data":                   {exitUsage, "expected --reclaim=Retain or --reclaim=Delete", ""},
		"volume set shop_db size=2Gi uid=5":     {exitDone, "volume shop_db has size=2Gi uid=5\n", ""},
		"volume set shop_db size=1Ki":           {exitFailed, "option size: want at least 1Mi", ""},
		"volume set db size=2Gi size=3Gi":       {exitUsage, "each once", ""},
		"volume set size=2Gi":                   {exitUsage, "expected the name of a volume before size=2Gi", ""},
		"volume set nope size=2Gi":              {exitFailed, "volume nope", ""},
		"volume set db size=2Gi -n default":     {exitUsage, "without -n", ""},
		"volume set pvc data --reclaim=Recycle": {exitUsage, "must be one of Retain, Delete", ""},
		"volume set pv/data --reclaim=Retain":   {exitUsage, `unknown kind "pv"`, ""},
	} {
		t.Run(args, func(t *testing.T) {
			r := newRig(t, mounted(fixed))
			code := r.do(t, strings.Fields(args)...)
			if out := r.stdout.String() + r.stderr.String(); code != want.code || !strings.Contains(out, want.text) {
				t.Errorf("exit code %d, want %d and %q:\n%s", code, want.code, want.text, out)
			}
			if got := strings.Join(r.deleted(), " "); got != want.deleted {
				t.Errorf("deleted %q, want %q", got, want.deleted)
			}
		})
	}
}

// What would become of the data is what the daemon does: a volume that it did not make, and one with reclaimPolicy Retain,
// stays; the latter goes with --data.
func TestTheFateOfAClaimsData(t *testing.T) {
	for _, tt := range []struct {
		s    server.ClaimStatus
		data bool
		want string
	}{
		{server.ClaimStatus{}, false, "it has no volume"},
		{server.ClaimStatus{Volume: "v", Driver: "d", ReclaimPolicy: "Delete"}, false, "goes with ITS DATA"},
		{server.ClaimStatus{Volume: "v", Driver: "d"}, false, "goes with ITS DATA"}, // an older daemon says nothing
		{server.ClaimStatus{Volume: "v", Driver: "d", ReclaimPolicy: "Retain"}, false, "stays, with its data (reclaimPolicy Retain)"},
		{server.ClaimStatus{Volume: "v", Driver: "d", ReclaimPolicy: "Retain"}, true, "goes with ITS DATA"},
		{server.ClaimStatus{Volume: "v", ReclaimPolicy: "Retain"}, true, "stays, with its data: csi-volmgr did not make it"},
	} {
		d := deletion{ClaimDeletion: server.ClaimDeletion{Data: tt.data}}
		if got := d.fate(tt.s); !strings.HasSuffix(got, tt.want) {
			t.Errorf("%+v, data %v: %q, want %q", tt.s, tt.data, got, tt.want)
		}
	}
}

// deleted lists what the daemon was asked to delete.
func (r *rig) deleted() (names []string) {
	for _, what := range r.backend.asked {
		if words := strings.Fields(what); words[0] == "delete" {
			names = append(names, strings.TrimPrefix(words[2], "default/"))
		}
	}
	return names
}
