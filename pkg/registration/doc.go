// Package registration finds CSI drivers by the sockets that they, or their
// node-driver-registrar, put into a directory, and says when each is up or down.
//
// Owns: the directory watch (level-triggered: every event leads to a scan), a
// socket's identity and generation, the handshake of the plugin registration
// protocol (k8s.io/kubelet, pluginregistration/v1), which socket has a driver
// name, and why one that is there is not up.
//
// Does not: speak CSI, or know volumes. Whether a driver answers is for the
// [Handler] to find out.
//
// A socket is its path, inode and time of birth: file systems hand an inode
// number out again at once. A new one at the same path is a new generation, and
// the old one goes down before it comes up. The removal of a registration
// socket takes its driver down, as it does at the kubelet; that a registrar
// died without removing it does not. What still has to be taken from the
// driver's volumes then waits, visibly, until it registers again.
//
// Of two sockets with one name the first keeps it while its process lives; the
// second waits, is reported, and takes over when the first goes, or when nobody
// listens on the first's own CSI socket while its own is served: a registrar
// may outlive its driver, and would keep the name from one that is well.
//
// A socket is dialled only where root listens, or the user of this process, as the
// kernel says: the process that registers a driver's name is given its secrets.
//
// A registrar that is told of a refusal exits, and its kubelet may think
// otherwise; so where a kubelet watches the directory too nobody is told
// anything, and elsewhere only what cannot get better by itself is refused:
// type, version, name. Everything else is tried again.
package registration
