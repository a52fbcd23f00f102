// Package manifest decodes the objects that csi-volmgr reads from YAML or JSON,
// strictly.
//
// Owns: which kinds there are and how they are written, the limits on a file,
// the defaults that an API server would have filled in (namespace, a pod's and
// a claim's uid, a secret's stringData), and errors that say file, line,
// document, object, field, and what would be right.
//
// Does not: read files, or know which objects there already are.
//
// The decoder is this package's own, over YAML nodes, because an error has to
// name the line and must not show the values of a secret; the usual way, YAML
// to JSON to struct, loses the first and does the second.
//
// Invariants: either all objects of the input are returned or none is. A message
// shows of what was found the kind, the names and the fields that have rules of
// their own, and of everything else only what sort of value it is: so never a
// secret's value.
package manifest
