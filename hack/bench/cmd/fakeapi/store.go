package main

import (
	"log"
	"strconv"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

type resInfo struct {
	gv   schema.GroupVersion
	kind string
	obj  runtime.Object
	list func() runtime.Object
}

var resources = map[string]resInfo{
	"nodes":                  {v1.SchemeGroupVersion, "Node", &v1.Node{}, func() runtime.Object { return &v1.NodeList{} }},
	"pods":                   {v1.SchemeGroupVersion, "Pod", &v1.Pod{}, func() runtime.Object { return &v1.PodList{} }},
	"persistentvolumes":      {v1.SchemeGroupVersion, "PersistentVolume", &v1.PersistentVolume{}, func() runtime.Object { return &v1.PersistentVolumeList{} }},
	"persistentvolumeclaims": {v1.SchemeGroupVersion, "PersistentVolumeClaim", &v1.PersistentVolumeClaim{}, func() runtime.Object { return &v1.PersistentVolumeClaimList{} }},
	"configmaps":             {v1.SchemeGroupVersion, "ConfigMap", &v1.ConfigMap{}, func() runtime.Object { return &v1.ConfigMapList{} }},
	"secrets":                {v1.SchemeGroupVersion, "Secret", &v1.Secret{}, func() runtime.Object { return &v1.SecretList{} }},
	"serviceaccounts":        {v1.SchemeGroupVersion, "ServiceAccount", &v1.ServiceAccount{}, func() runtime.Object { return &v1.ServiceAccountList{} }},
	"csidrivers":             {storagev1.SchemeGroupVersion, "CSIDriver", &storagev1.CSIDriver{}, func() runtime.Object { return &storagev1.CSIDriverList{} }},
	"csinodes":               {storagev1.SchemeGroupVersion, "CSINode", &storagev1.CSINode{}, func() runtime.Object { return &storagev1.CSINodeList{} }},
}

type watcher struct {
	res, ns, name string
	ch            chan watch.Event
}

type store struct {
	mu       sync.Mutex
	rv       int64
	objs     map[string]map[string]runtime.Object // resource -> ns/name
	watchers map[*watcher]struct{}
	counts   map[string]int64
}

func key(ns, name string) string { return ns + "/" + name }

func (s *store) count(k string) {
	s.mu.Lock()
	s.counts[k]++
	s.mu.Unlock()
}

// put stores an object and notifies the watchers.
func (s *store) put(res string, o runtime.Object) {
	a, _ := meta.Accessor(o)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv++
	a.SetResourceVersion(strconv.FormatInt(s.rv, 10))
	o.GetObjectKind().SetGroupVersionKind(resources[res].gv.WithKind(resources[res].kind))
	if s.objs[res] == nil {
		s.objs[res] = map[string]runtime.Object{}
	}
	k := key(a.GetNamespace(), a.GetName())
	t := watch.Added
	if s.objs[res][k] != nil {
		t = watch.Modified
	}
	s.objs[res][k] = o
	s.tell(res, a, watch.Event{Type: t, Object: o})
}

// tell sends an event to the watchers that it concerns; the caller holds s.mu.
func (s *store) tell(res string, a metav1.Object, e watch.Event) {
	for w := range s.watchers {
		if w.res == res && (w.ns == "" || w.ns == a.GetNamespace()) && (w.name == "" || w.name == a.GetName()) {
			select {
			case w.ch <- e:
			default:
				log.Printf("watcher of %s overflows", res)
			}
		}
	}
}

// remove deletes an object and notifies the watchers.
func (s *store) remove(res, ns, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objs[res][key(ns, name)]
	if o == nil {
		return
	}
	delete(s.objs[res], key(ns, name))
	o = o.DeepCopyObject()
	a, _ := meta.Accessor(o)
	s.rv++
	a.SetResourceVersion(strconv.FormatInt(s.rv, 10))
	s.tell(res, a, watch.Event{Type: watch.Deleted, Object: o})
}

func (s *store) get(res, ns, name string) runtime.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objs[res][key(ns, name)]
}

func (s *store) match(res, ns, name string) []runtime.Object {
	if name != "" {
		if o := s.objs[res][key(ns, name)]; o != nil {
			return []runtime.Object{o}
		}
		return nil
	}
	var l []runtime.Object
	for k, o := range s.objs[res] {
		if ns == "" || strings.HasPrefix(k, ns+"/") {
			l = append(l, o)
		}
	}
	return l
}
