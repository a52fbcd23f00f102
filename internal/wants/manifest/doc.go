// Package manifest strictly decodes the objects that csi-volmgr reads from YAML or JSON.
//
// Owns: the supported kinds and their form, the limits on a file, the defaults that an API server
// would fill in (namespace, a pod's and a claim's uid, a secret's stringData), and errors that
// contain the file, line, document, object, field, and what would be right.
//
// Does not: read files, or know which objects already exist.
//
// The package has its own decoder over YAML nodes, because an error must contain the line and must
// not contain a secret's value. The usual way, YAML to JSON to struct, loses the line and shows
// values.
//
// Invariants: Decode returns all objects of the input or none. A message quotes the kind, names and
// fields that have rules of their own. For everything else it contains only the type of the value,
// and so never a secret's value.
package manifest
