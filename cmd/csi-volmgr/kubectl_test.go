package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// What people type who know kubectl works, or the error says what works instead.
func TestHandsThatKnowKubectl(t *testing.T) {
	for args, want := range map[string]struct {
		code int
		text string // part of the output
	}{
		"get pv,pvc":      {exitDone, "pv-data"},
		"get pvc,pv":      {exitDone, "data "},
		"get all":         {exitDone, "nfs.example.com"},
		"get all -A":      {exitDone, "till"},
		"get pv,nosuch":   {exitUsage, `unknown kind "nosuch"`},
		"get pv,pvc data": {exitUsage, "names need one kind"},
		"get pv,pvc -w":   {exitUsage, "watch one kind at a time"},
		"get sc":          {exitDone, "fast   nfs.example.com, Delete, default"},
		"get storageclass fast -o jsonpath={.about}": {exitDone, "nfs.example.com, Delete, default"},
		"get sc slow":                  {exitFailed, "storageclass slow is not known here"},
		"get secrets":                  {exitDone, "login   Opaque, 1 key"},
		"get secret login -o wide":     {exitDone, "password"},
		"get cm":                       {exitDone, "No configmap found in namespace default."},
		"get cm -w":                    {exitUsage, "configmaps cannot be watched"},
		"get csidrivers":               {exitDone, "No csidriver found."},
		"get pods -l app=web":          {exitDone, "web "},
		"get pods -A -l !app":          {exitDone, "till"},
		"get pods -l app=other":        {exitDone, "No pod found in namespace default"},
		"get pods -l app=(":            {exitUsage, "-l app=("},
		"get pods web -l app=web":      {exitUsage, "leave out the names"},
		"get volumes -l app=web":       {exitUsage, "volumes have no labels"},
		"get sc,secrets":               {exitDone, "login"},
		"get events":                   {exitUsage, "csi-volmgr keeps no events"},
		"events":                       {exitUsage, "csi-volmgr keeps no events"},
		"edit pod web":                 {exitUsage, "change the manifest and apply it"},
		"ps":                           {exitUsage, `unknown command "ps": csi-volmgr get pods`},
		"rm web":                       {exitUsage, "csi-volmgr delete pod NAME"},
		"inspect web":                  {exitUsage, "csi-volmgr describe pod NAME"},
		"status":                       {exitUsage, "systemctl status csi-volmgr"},
		"umount /mnt":                  {exitUsage, "csi-volmgr delete pod NAME"},
		"node drain n1":                {exitUsage, `unknown command "node": csi-volmgr drain`},
		"create -f x.yaml":             {exitUsage, "csi-volmgr apply -f FILE"},
		"volume create -d csi v":       {exitUsage, "a volume is made for a claim"},
		"snapshot list":                {exitUsage, "csi-volmgr get snapshots"},
		"driver list":                  {exitUsage, "csi-volmgr get drivers"},
		"xy":                           {exitUsage, "unknown command \"xy\"\n"},
		"get pods --outptu json":       {exitUsage, "is it --output?"},
		"run --hostpath-allow=/x":      {exitUsage, "is it --host-path-allow?"},
		"apply nosuch.yaml":            {exitUsage, "csi-volmgr apply -f nosuch.yaml"},
		"explain web":                  {exitUsage, "a pod is named so: pod web"},
		"explain pod default/web":      {exitDone, "pod default/web: "},
		"describe pod default/web":     {exitDone, "web"},
		"explain pod a/web -n b":       {exitUsage, "leave out one"},
		"who web":                      {exitFailed, "if it is a pod: csi-volmgr who pod web"},
		"get pod/web pvc/data":         {exitDone, "data "},
		"get pod/web pvc/data -o json": {exitDone, `"data"`},
		"get pod/web xyz/data":         {exitUsage, `unknown kind "xyz"`},
		"get pod web -n prod":          {exitFailed, "there is one in namespace default: repeat with -n default"},
		"get pvc data -n prod":         {exitFailed, "there is one in namespace default: repeat with -n default"},
		"exec web -- sh":               {exitUsage, "csi-volmgr runs no containers"},
		"logs web":                     {exitUsage, "journalctl -u csi-volmgr"},
		"cordon n1":                    {exitUsage, "csi-volmgr drain"},
		"apply -k dir":                 {exitUsage, "kubectl kustomize DIRECTORY | csi-volmgr apply -f -"},
		"delete -k dir":                {exitUsage, "kubectl kustomize DIRECTORY | csi-volmgr apply -f -"},
		"delete pod --all":             {exitDone, "pod/web deleted\n"},
		"delete pvc --all --yes":       {exitDone, "pvc/data deleted\npvc/more deleted\n"},
		"delete pod --all -n none":     {exitDone, "No pod found in namespace none."},
		"delete --all":                 {exitUsage, "expected either"},
		"delete pod web --all":         {exitUsage, "--all: expected pod, pvc, snapshot or groupsnapshot, and no name"},
		"delete pv --all":              {exitUsage, `unknown kind "pv"`},
		"who pod web":                  {exitDone, "volume       nfs.example.com^vol-1\n"},
		"who pod/web":                  {exitDone, "volume       nfs.example.com^vol-1\n"},
		"who pvc data":                 {exitDone, "rsync (containerd"},
		"who volume data":              {exitDone, "rsync (containerd"},
		"who pod nosuch":               {exitFailed, "pod default/nosuch is not known here"},
		"who driver x":                 {exitUsage, "expected one VOLUME or PATH, or pod NAME"},
		"who pod web -o jsonpath={.items[*].volume}": {exitDone, "nfs.example.com^vol-1"},
	} {
		t.Run(args, func(t *testing.T) {
			r := newRig(t, mounted(fixed))
			code := r.do(t, strings.Fields(args)...)
			if out := r.stdout.String() + r.stderr.String(); code != want.code || !strings.Contains(out, want.text) {
				t.Errorf("exit code %d, want %d and %q:\n%s", code, want.code, want.text, out)
			}
		})
	}
}

// Several kinds are one list for programs, and one table per kind for people.
func TestSeveralKindsAreOneList(t *testing.T) {
	r := newRig(t, mounted(fixed))
	if code := r.do(t, "get", "pv,pvc", "-A", "-o", "json"); code != exitDone {
		t.Fatalf("exit code %d: %s", code, r.stderr.String())
	}
	var list server.List[struct{ Name string }]
	if err := json.Unmarshal([]byte(r.stdout.String()), &list); err != nil || len(list.Items) != 4 || list.Items[0].Name != "pv-data" || list.Items[1].Name != "data" {
		t.Errorf("%v: %s", err, r.stdout.String())
	}
	if code := r.do(t, "get", "pv,pvc"); code != exitDone || strings.Count(r.stdout.String(), "\n\nNAME ") != 1 {
		t.Errorf("exit code %d:\n%s", code, r.stdout.String())
	}
}
